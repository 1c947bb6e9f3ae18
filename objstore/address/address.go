// Package address opens the store that an address names:
//
//	out/                       a directory; also file:///data/out and ~/out
//	s3://bucket/prefix         a bucket of S3 or of a compatible server
//	gs://bucket/prefix         a bucket of Google Cloud Storage
//	az://account/container/prefix    a container of Azure Blob Storage
//	https://host/prefix        files of a web server, read only
//	hf://datasets/ORG/NAME     a data set on the Hugging Face Hub, read only
//	hf://buckets/ORG/NAME      a storage bucket on the Hugging Face Hub
//
// It is separate from package objstore, which every store imports, so that objstore imports no
// store.
//
// # S3
//
// The AWS SDK finds credentials, region and endpoint in the usual places: AWS_ACCESS_KEY_ID and
// related variables, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL, the files in ~/.aws, the role of
// the machine. An address can hold settings for one data set:
//
//	s3://bucket/prefix?endpoint=https://host:9000&region=eu-west-1&profile=name&anonymous=true&path_style=true.
//
// unchecked=true is for servers whose checksums are wrong, or whose ETags look like MD5s of the
// content and are not. What the owner of a bucket requires, as in [s3.Required]:
//
//	requester_pays=true&sse=aws:kms&sse_kms_key_id=alias/k&storage_class=STANDARD_IA&acl=private
//	sse_customer_key_file=/path: a file with the key, 32 bytes or their base64
//
// The ARN of an access point stands for a bucket.
//
// # Web servers
//
// SHARDTOOL_HTTP_HEADERS names a file with headers for servers: a line has scheme and host, and a
// header, as in https://host X-Api-Key: abc. Any server that asks for a certificate gets that of
// SHARDTOOL_CLIENT_CERT and SHARDTOOL_CLIENT_KEY.
//
// # Google Cloud Storage
//
// The application default credentials are used: GOOGLE_APPLICATION_CREDENTIALS, the file of gcloud,
// the service account of the machine. An address can hold settings:
//
//	gs://bucket/prefix?endpoint=https://host:port&anonymous=true&user_project=name.
//	storage_class=NEARLINE&kms_key=projects/P/locations/L/keyRings/R/cryptoKeys/K
//	customer_key_file=/path: a file with a key, 32 bytes or their base64
//
// STORAGE_EMULATOR_HOST names another server, which is asked anonymously.
//
// # Azure Blob Storage
//
//	az://account/container/prefix
//	abfss://container@account.dfs.core.windows.net/prefix
//
// azure:// is az://. Variables of the Azure CLI have the credentials, such as
// AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN and AZURE_STORAGE_CONNECTION_STRING, or the
// client in AZURE_CLIENT_ID with AZURE_CLIENT_SECRET, AZURE_CLIENT_CERTIFICATE_PATH or
// AZURE_FEDERATED_TOKEN_FILE; else the identity of the machine is used, or az login. The query of
// an address can be a shared access signature, or have settings:
//
//	az://account/container/prefix?endpoint=https://host:port&anonymous=true.
//	access_tier=Cool&encryption_scope=name
//	customer_key_file=/path: a file with a key, 32 bytes or their base64
//
// # The Hugging Face Hub
//
//	hf://datasets/ORG/NAME@REVISION/path
//
// REVISION is a branch, a tag or a commit, with %2F for a slash, or refs/convert/parquet and the
// like; without it main is read. It becomes a commit when the store is used first. HF_ENDPOINT,
// HF_TOKEN, HF_TOKEN_PATH, HF_HOME and HF_OIDC_RESOURCE are read as other programs for the Hub read
// them.
//
// A bucket of the Hub is reached through its gateway for the API of S3, with the keys that the Hub
// makes for a token (https://huggingface.co/docs/hub/storage-buckets-s3). The SDK finds them as for
// s3://. An address can hold settings:
//
//	hf://buckets/ORG/NAME/prefix?profile=name&endpoint=https://host
package address

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	httpstore "github.com/shardtool/shardtool/objstore/http"
	"github.com/shardtool/shardtool/objstore/internal/az"
	"github.com/shardtool/shardtool/objstore/internal/gs"
	"github.com/shardtool/shardtool/objstore/internal/hub"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/s3"
)

// ErrScheme reports an address with a scheme that no store supports.
var ErrScheme = errors.New("unsupported scheme")

// Options configure the store.
type Options struct {
	// Logger receives warnings that are not errors. Nil means none. Secrets are never logged.
	Logger *slog.Logger
}

// Open returns the store at an address. It sends no request: a missing bucket or host is an error
// of the first use. A local path names a directory, which need not exist; a path to a file is
// refused, and so is what rsync and scp call a place on another host, unless there is a folder of
// that name. The error for an unsupported scheme wraps [ErrScheme] and names the scheme. Errors
// contain neither user information nor a query.
func Open(ctx context.Context, addr string, o Options) (objstore.Store, error) {
	if addr == "" {
		return nil, errors.New("the address is empty; give a directory, or a URL such as s3://bucket/prefix")
	}
	addr, err := Local(addr)
	if err != nil {
		return nil, err
	}
	scheme, rest, ok := cutScheme(addr)
	if !ok {
		if scheme, rest, named := strings.Cut(addr, ":"); named && schemes[scheme] != nil {
			rest, slash := strings.CutPrefix(rest, "/")
			whole, colon := objstore.NewAddress(scheme+"://"+rest).String(), ":"
			if slash {
				colon = ":/"
			}
			return nil, fmt.Errorf("open %s: an address has two slashes: write %s, or ./ before the name of a folder",
				strings.Replace(whole, "://", colon, 1), whole)
		}
		if err := elsewhere(addr); err != nil {
			return nil, err
		}
		return local.New(addr, local.Options{})
	}
	if open := schemes[scheme]; open != nil {
		return open(ctx, address{addr, scheme, rest}, o)
	}
	return nil, fmt.Errorf("%w %s://; give a directory, s3://bucket/prefix, gs://bucket/prefix or az://account/container/prefix; hf://datasets/ORG/NAME and https://host/prefix can only be read", ErrScheme, scheme)
}

// address is an address and its parts, scheme://rest.
type address struct{ all, scheme, rest string }

// schemes has the function that opens an address of each scheme.
var schemes = map[string]func(ctx context.Context, a address, o Options) (objstore.Store, error){
	"s3":    openS3,
	"gs":    openGS,
	"az":    openAzure,
	"azure": openAzure,
	"abfs":  openAzure,
	"abfss": openAzure,
	"http":  openHTTP,
	"https": openHTTP,
	"hf":    openHub,
}

func openHTTP(_ context.Context, a address, o Options) (objstore.Store, error) {
	header, err := headersOf(a.all)
	if err != nil {
		return nil, err
	}
	return httpstore.New(a.all, httpstore.Options{Logger: o.Logger, Header: header})
}

// headerField matches a header, RFC 9110 section 5: a token, and text without control characters.
var headerField = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x1f\x7f]*)$")

// headersOf returns the headers that the file in SHARDTOOL_HTTP_HEADERS has for the server of a URL.
// Errors do not repeat its text, which has secrets.
func headersOf(addr string) (http.Header, error) {
	file := os.Getenv("SHARDTOOL_HTTP_HEADERS")
	u, err := url.Parse(addr)
	if file == "" || err != nil { // the store says what is wrong with the address
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("SHARDTOOL_HTTP_HEADERS: %w", err)
	}
	header, number := http.Header{}, 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		server, rest, _ := strings.Cut(line, " ")
		field := headerField.FindStringSubmatch(strings.TrimSpace(rest))
		at, err := url.Parse(server)
		if err != nil || at.Host == "" || field == nil {
			return nil, fmt.Errorf("%s:%d: write a server and a header, as in https://host X-Api-Key: abc", file, number)
		}
		if strings.EqualFold(at.Scheme, u.Scheme) && strings.EqualFold(at.Host, u.Host) {
			header.Add(field[1], field[2])
		}
	}
	return header, nil
}

func openHub(ctx context.Context, a address, o Options) (objstore.Store, error) {
	if rest, ok := strings.CutPrefix(a.rest, "buckets/"); ok {
		return openHubBucket(ctx, rest, o)
	}
	place, _, options := strings.Cut(a.rest, "?")
	if options {
		return nil, fmt.Errorf("open hf://%s: it has no options after a ?; set HF_ENDPOINT and HF_TOKEN", place)
	}
	return hub.New(place, hub.Options{Logger: o.Logger})
}

func openS3(ctx context.Context, a address, o Options) (objstore.Store, error) {
	opts := s3.Options{Logger: o.Logger}
	r, keyFile := &opts.Required, ""
	_, _, err := a.parse(map[string]any{
		"endpoint": &opts.Endpoint, "region": &opts.Region, "profile": &opts.Profile, "anonymous": &opts.Anonymous,
		"unchecked": &opts.Unchecked, "path_style": &opts.PathStyle, "requester_pays": &r.RequesterPays,
		"sse": &r.Encryption, "sse_kms_key_id": &r.KMSKey, "sse_customer_key_file": &keyFile,
		"storage_class": &r.StorageClass, "acl": &r.ACL, "single_writer": &opts.SingleWriter,
	})
	if err != nil {
		return nil, err
	}
	place, _, _ := strings.Cut(a.rest, "?")
	if r.CustomerKey, err = a.customerKey("sse_customer_key_file", keyFile); err != nil {
		return nil, err
	}
	bucket, prefix := s3.CutBucket(place)
	return s3.New(ctx, bucket, prefix, opts)
}

// customerKey reads the file that an option names.
func (a address) customerKey(option, file string) ([]byte, error) {
	key, err := customerKey(file)
	if err != nil {
		place, _, _ := strings.Cut(a.rest, "?")
		err = fmt.Errorf("open %s://%s: option %q: %w", a.scheme, place, option, err)
	}
	return key, err
}

// customerKey reads a key of 32 bytes: the bytes, or their base64. The key itself is in no address,
// because others see those.
func customerKey(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	path, err := Local(file)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	key, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil || len(key) == 32 {
		return key, err
	}
	if key, err = base64.StdEncoding.DecodeString(strings.TrimSpace(string(key))); err != nil || len(key) != 32 {
		return nil, fmt.Errorf("%s has no 32 bytes, nor their base64", path)
	}
	return key, nil
}

// openHubBucket opens a storage bucket of the Hub. Its gateway has the namespace in the path of the
// endpoint, addresses buckets by paths, does not parse checksums that trail, and redirects reads.
func openHubBucket(ctx context.Context, rest string, o Options) (objstore.Store, error) {
	namespace, rest, _ := strings.Cut(rest, "/")
	place, _, _ := strings.Cut(rest, "?")
	opts := s3.Options{
		Logger: o.Logger, Region: "us-east-1", PathStyle: new(bool), RequestChecksums: "when_required",
		Gateway: "hf://buckets/" + namespace + "/" + strings.TrimRight(place, "/"),
	}
	*opts.PathStyle = true
	bucket, prefix, err := address{opts.Gateway, "hf", rest}.parse(map[string]any{"endpoint": &opts.Endpoint,
		"profile": &opts.Profile})
	if err != nil {
		return nil, err
	}
	if url.PathEscape(namespace) != namespace || strings.Trim(namespace, ".") == "" || bucket == "" {
		return nil, fmt.Errorf("open %s: it does not name an organization and a bucket; give hf://buckets/ORG/NAME",
			opts.Gateway)
	}
	opts.Endpoint = strings.TrimSuffix(cmp.Or(opts.Endpoint, "https://s3.hf.co"), "/") + "/" + namespace
	return s3.New(ctx, bucket, prefix, opts)
}

func openGS(_ context.Context, a address, o Options) (objstore.Store, error) {
	var opts gs.Options
	opts.Logger = o.Logger
	keyFile := ""
	bucket, prefix, err := a.parse(map[string]any{
		"endpoint": &opts.Endpoint, "anonymous": &opts.Anonymous, "user_project": &opts.UserProject,
		"storage_class": &opts.StorageClass, "kms_key": &opts.KMSKey, "customer_key_file": &keyFile,
	})
	if err != nil {
		return nil, err
	}
	if opts.CustomerKey, err = a.customerKey("customer_key_file", keyFile); err != nil {
		return nil, err
	}
	return gs.New(bucket, prefix, opts)
}

func openAzure(_ context.Context, a address, o Options) (objstore.Store, error) {
	var opts az.Options
	opts.Logger = o.Logger
	place, query, _ := strings.Cut(a.rest, "?")
	if strings.HasPrefix(a.scheme, "abfs") { // container@account.dfs.core.windows.net/prefix
		host, prefix, _ := strings.Cut(place, "/")
		container, host, _ := strings.Cut(host, "@")
		account, domain, ok := strings.Cut(host, ".dfs.")
		if !ok {
			return nil, fmt.Errorf("open %s: give %s://container@account.dfs.core.windows.net/prefix, or az://account/container/prefix", objstore.NewAddress(a.all), a.scheme)
		}
		opts.Endpoint, place = "https://"+account+".blob."+domain, account+"/"+container+"/"+prefix
	}
	keyFile := ""
	options := map[string]any{"endpoint": &opts.Endpoint, "anonymous": &opts.Anonymous,
		"access_tier": &opts.AccessTier, "encryption_scope": &opts.EncryptionScope, "customer_key_file": &keyFile}
	if signed, err := url.ParseQuery(query); err == nil && signed.Has("sig") {
		sas := url.Values{}
		for name := range signed {
			if options[name] == nil {
				sas[name] = signed[name]
				options[name] = new(string)
			}
		}
		opts.SAS = sas.Encode()
	}
	account, rest, err := address{a.all, a.scheme, place + "?" + query}.parse(options)
	if err != nil {
		return nil, err
	}
	if opts.CustomerKey, err = a.customerKey("customer_key_file", keyFile); err != nil {
		return nil, err
	}
	container, prefix, _ := strings.Cut(rest, "/")
	return az.New(account, container, prefix, opts)
}

// parse splits bucket/prefix?name=value and stores the values in the options, which are pointers to
// a string, a bool or a *bool.
func (a address) parse(options map[string]any) (bucket, prefix string, err error) {
	place, query, _ := strings.Cut(a.rest, "?")
	bucket, prefix, _ = strings.Cut(place, "/")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", "", fmt.Errorf("open %s://%s: the text after the ? is not a list of name=value", a.scheme, place)
	}
	for name, all := range values {
		value := all[len(all)-1]
		on, notBool := strconv.ParseBool(value)
		switch option := options[name].(type) {
		case *string:
			*option, notBool = value, nil
		case *bool:
			*option = on
		case **bool:
			*option = &on
		default:
			return "", "", fmt.Errorf("open %s://%s: option %q: unknown option; the options are %s",
				a.scheme, place, name, strings.Join(slices.Sorted(maps.Keys(options)), ", "))
		}
		if notBool != nil { // do not repeat the value, which may be a secret
			return "", "", fmt.Errorf("open %s://%s: option %q: give true or false", a.scheme, place, name)
		}
	}
	return bucket, prefix, nil
}

// cutScheme splits scheme://rest. It accepts the schemes of RFC 3986 (a letter, then letters,
// digits, + - .) and returns them in lower case.
func cutScheme(addr string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(addr, "://")
	if !ok || scheme == "" {
		return "", "", false
	}
	scheme = strings.ToLower(scheme)
	for i, c := range []byte(scheme) {
		letter := 'a' <= c && c <= 'z'
		other := '0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'
		if !letter && (i == 0 || !other) {
			return "", "", false
		}
	}
	return scheme, rest, true
}
