package address

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/shardtool/shardtool/objstore"
)

// Local returns the path of an address that names one in another form: file:///data/out is
// /data/out, percent-decoded, and ~/out is in the home folder of the user, unless a folder is
// called ~. Other addresses and paths are returned as they are. The error is of a file:// of
// another host, and of a user without a home folder.
func Local(addr string) (string, error) {
	if rest, ok := strings.CutPrefix(addr, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		if _, err := os.Lstat("~"); err == nil {
			return addr, nil
		}
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%s: the home folder is not known: give the whole path: %w", addr, err)
		}
		return home + rest, nil
	}
	const scheme = "file:/"
	if len(addr) < len(scheme) || !strings.EqualFold(addr[:len(scheme)], scheme) {
		return addr, nil
	}
	text := addr[len(scheme)-1:]
	if rest, ok := strings.CutPrefix(text, "//"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if text = rest[len(host):]; host != "" && host != "localhost" || text == "" {
			return "", fmt.Errorf("%s names the host %q, and files of other hosts cannot be opened so: give a path, /data, or file:///data with three slashes", objstore.NewAddress(addr), host[strings.LastIndexByte(host, '@')+1:])
		}
	}
	path, err := url.PathUnescape(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w: write %%25 for a percent sign, or give the path itself",
			objstore.NewAddress(addr), err)
	}
	if strings.IndexByte(path, 0) >= 0 {
		return "", fmt.Errorf("%s: a path has no NUL byte", addr)
	}
	return filepath.FromSlash(path), nil
}

// elsewhere refuses [user@]host:/path, which names a place on another host for rsync and scp, and
// C:\path where there are no drives: a data set would be made in a new folder of that name here. A
// folder that exists may be called so.
func elsewhere(addr string) error {
	host, path, ok := strings.Cut(addr, ":")
	if !ok || host == "" || strings.HasPrefix(path, "//") || strings.ContainsAny(host, `/\`) || filepath.VolumeName(addr) != "" {
		return nil
	}
	first, _, _ := strings.Cut(addr, "/")
	if _, err := os.Lstat(first); err == nil {
		return nil
	}
	shown := objstore.NewAddress(addr)
	switch {
	case len(host) == 1 && path != "" && strings.Contains(`/\`, path[:1]):
		return fmt.Errorf("open %s: this system has no drives: write the path that it has for the folder, or ./ before the name of a folder", shown)
	case strings.Contains(host, "@"), path == "", strings.Contains("/~", path[:1]):
		return fmt.Errorf("open %s: a place on another host is no address: pack into a folder and copy it, `rsync -a out/ %[1]s`, or write ./ before the name of a folder", shown)
	}
	return nil
}

// Locals returns what Local does of each address.
func Locals(addrs []string) ([]string, error) {
	all := make([]string, len(addrs))
	for i, addr := range addrs {
		var err error
		if all[i], err = Local(addr); err != nil {
			return nil, err
		}
	}
	return all, nil
}
