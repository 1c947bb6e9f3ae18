package credentials

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	google "cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/compute/metadata"

	"github.com/shardtool/shardtool/objstore/internal/ranged"
)

// Google returns a source with Google's application default credentials, for a scope.
func Google(scope string, client *http.Client, secrets *ranged.Secrets) *Source {
	s := newSource(client, secrets)
	s.advice = "set GOOGLE_APPLICATION_CREDENTIALS, run gcloud auth application-default login, or read a public bucket with anonymous=true"
	s.places = "GOOGLE_APPLICATION_CREDENTIALS, the file of gcloud auth application-default login, the metadata server"
	const variable = "GOOGLE_APPLICATION_CREDENTIALS"
	named := os.Getenv(variable)
	if named != "" {
		s.places = named + ", which " + variable + " names"
	}
	s.find = func(bool) (ask, error) {
		options := google.DetectOptions{Scopes: []string{scope}, Client: s.client, DisableAsyncRefresh: true,
			Logger: slog.New(slog.DiscardHandler)}
		found, err := google.DetectDefault(&options)
		if err == nil && certified(found.JSON()) {
			options.Client = nil // one with the certificate
			found, err = google.DetectDefault(&options)
		}
		if err != nil {
			return nil, err
		}
		switch machine := found.JSON() == nil; {
		case machine:
			s.is(s.machine)
		case named != "":
			s.found(s.account(found.JSON()), s.places)
		default:
			s.found(s.account(found.JSON()), "the file of gcloud auth application-default login")
		}
		return func(ctx context.Context) (string, time.Time, error) {
			token, err := found.Token(ctx)
			if err != nil {
				return "", time.Time{}, lost(err)
			}
			return token.Value, token.Expiry, nil
		}, nil
	}
	return s
}

// lost returns a refusal of the metadata server as a transient error, if it is one while the server
// is restarted.
func lost(err error) error {
	a := ranged.Answer{Message: "the metadata server has no token"}
	if _, ok := errors.AsType[metadata.NotDefinedError](err); ok {
		a.Status = http.StatusNotFound
	} else if refused, ok := errors.AsType[*metadata.Error](err); ok {
		a.Status = refused.Code
	}
	if restarting(a.Status) {
		return a.Transient()
	}
	return err
}

// certified reports whether credentials are federated by an X.509 certificate.
func certified(text []byte) bool {
	var file struct {
		Source struct {
			Certificate json.RawMessage
		} `json:"credential_source"`
	}
	return json.Unmarshal(text, &file) == nil && file.Source.Certificate != nil
}

// machine asks for the service account of the machine.
func (s *Source) machine() (identity, from string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	email, _ := metadata.NewClient(s.client).EmailWithContext(ctx, "default") // an older server may have none
	return cmp.Or(email, "the service account of the machine"), "the metadata server"
}

// account returns whose a file of credentials is. The library has parsed the file.
func (s *Source) account(text []byte) string {
	var file struct {
		Type          string
		Email         string `json:"client_email"`
		Impersonation string `json:"service_account_impersonation_url"`
	}
	_ = json.Unmarshal(text, &file)
	if email, ok := strings.CutSuffix(path.Base(file.Impersonation), ":generateAccessToken"); ok {
		file.Email = email
	}
	return strings.ReplaceAll(ranged.Clean(file.Type), "_", " ") + " " + s.secrets.Redact(file.Email)
}
