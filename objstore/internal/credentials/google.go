package credentials

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path"
	"strings"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

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
	s.find = func(ctx context.Context) (oauth2.TokenSource, error) {
		credentials, err := google.FindDefaultCredentials(ctx, scope)
		switch {
		case err != nil:
			return nil, err
		case credentials.JSON == nil:
			s.whose = s.machine
		case named != "":
			s.found(s.account(credentials.JSON), s.places)
		default:
			s.found(s.account(credentials.JSON), "the file of gcloud auth application-default login")
		}
		return credentials.TokenSource, nil
	}
	return s
}

// machine asks for the service account of the machine.
func (s *Source) machine() (identity, from string) {
	email, _ := metadata.NewClient(s.client).Email("default") // an older server may have none
	return cmp.Or(email, "the service account of the machine"), "the metadata server"
}

// account returns whose a file of credentials is. Package google has parsed the file.
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
