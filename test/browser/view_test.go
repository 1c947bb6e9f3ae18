//go:build browser

package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// axeVersion is the release of axe-core that looks for barriers.
const axeVersion = "4.10.3"

// browser is a tab that remembers what went wrong in it.
type browser struct {
	context.Context
	t *testing.T
	// address is what the program printed, base the same without the token.
	address, base string

	mu    sync.Mutex
	wrong []string
}

// tool is the program, and dir has a data set of harmless fields, one of hostile ones, and a mix of
// them.
var tool, dir string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "view"); err == nil {
		tool = filepath.Join(dir, "shardtool")
		err = build()
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func build() error {
	var failed error
	shell := func(name string, args ...string) {
		if text, err := exec.Command(name, args...).CombinedOutput(); err != nil && failed == nil {
			failed = fmt.Errorf("%s %q: %w: %s", name, args, err, text)
		}
	}
	shell("go", "build", "-C", "../..", "-trimpath", "-o", tool, "./cmd/shardtool")
	shell(tool, "pack", "../../testdata/demo", filepath.Join(dir, "demo"), "--class-field", "cls")
	files := map[string]string{
		"a.html": "<html><script>document.title = 'taken'</script>", "a.svg": `<svg xmlns="http://www.w3.org/2000/svg" onload="document.title='taken'"/>`,
		"a.txt": "</pre><script>document.title = 'taken'</script> مرحبا 你好", "a.json": `{"<b>": ["<img src=x onerror=\"document.title='taken'\">", 1, null]}`,
		"a.bin": "\x00\x01\x02", `b" onfocus="document.title='taken'" x="é.txt`: "a key with markup",
	}
	src := filepath.Join(dir, "src")
	if err := os.Mkdir(src, 0o700); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	shell(tool, "pack", src, filepath.Join(dir, "hostile"))
	mix := fmt.Sprintf("sources:\n  demo: {data: %q, weight: 3}\n  hostile: {data: %q, weight: 1}\n", filepath.Join(dir, "demo"), filepath.Join(dir, "hostile"))
	if err := os.WriteFile(filepath.Join(dir, "mix.yaml"), []byte(mix), 0o600); err != nil {
		return err
	}
	return failed
}

// open starts shardtool view and a tab at its first page.
func open(t *testing.T, data string, args ...string) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("no chromium: install it to look at the pages of shardtool view")
	}
	server := exec.Command(tool, append([]string{"view", filepath.Join(dir, data), "--no-open"}, args...)...)
	var stderr bytes.Buffer
	server.Stderr = &stderr
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	address := strings.TrimSpace(line)
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute), chromedp.WindowSize(1200, 900))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	base, _, _ := strings.Cut(address, "/?")
	b := &browser{Context: ctx, t: t, address: address, base: base}
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.wrong = append(b.wrong, "exception: "+e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				b.wrong = append(b.wrong, "console: "+e.Entry.Text+" "+e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme+"://"+u.Host != base {
				b.wrong = append(b.wrong, "a request elsewhere: "+e.Request.URL)
			}
		}
	})
	b.do(network.Enable(), log.Enable(), chromedp.Navigate(address))
	return b
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var value any
	b.do(chromedp.Evaluate(expression, &value))
	return fmt.Sprint(value)
}

// clean fails if something went wrong in the tab.
func (b *browser) clean(page string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.wrong {
		b.t.Errorf("%s: %s", page, text)
	}
	b.wrong = nil
}

// shoot keeps a picture of the page for a person to look at, in the folder that SHOTS names, if
// any.
func (b *browser) shoot(name, path string) {
	if dir := os.Getenv("SHOTS"); dir != "" {
		var picture []byte
		b.do(chromedp.CaptureScreenshot(&picture))
		if err := os.WriteFile(filepath.Join(dir, name+strings.NewReplacer("/", "-", "?", "-").Replace(path)+".png"), picture, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// prefers makes the tab light or dark.
func prefers(scheme string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}})
}

// axe returns the script of axe-core, which looks for barriers, or nothing where npm cannot get it.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-ec", "npm pack --silent axe-core@"+axeVersion+" && tar xzf axe-core-*.tgz package/axe.min.js")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Run("barriers", func(t *testing.T) {
			t.Skipf("axe-core cannot be had from npm, and barriers are not looked for: %v: %s", err, text)
		})
		return ""
	}
	script, err := os.ReadFile(filepath.Join(dir, "package/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script) + ";"
}

// barriers fails for each violation of the rules of axe-core that options choose: every control has
// a name, and colors have a contrast of at least 4.5.
func (b *browser) barriers(page, options string) {
	b.t.Helper()
	var found string
	b.do(chromedp.Evaluate("axe.run("+options+").then(r => JSON.stringify(r.violations.map(v => [v.id, v.nodes.map(n => n.html + ' ' + n.failureSummary).slice(0, 3)])))", &found,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var violations [][2]any
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		b.t.Errorf("%s: %v", page, v)
	}
}

var pages = []string{
	"/samples", "/samples?source=hostile", "/samples?show=training", "/samples?show=where&source=demo&find=class%20%3D%20food", "/sample?source=demo&n=3",
	"/sample?source=hostile&n=0", "/data?source=demo", "/step?n=3", "/marks", "/samples?from=99999",
}

// TestPages looks at every page: wide, at 375 pixels, and dark. No page is wider than the window,
// asks another host for anything, reports an error, executes what a sample holds, or has a barrier.
func TestPages(t *testing.T) {
	script := axe(t)
	b := open(t, "mix.yaml", "--shuffle", "--global-batch", "16")
	for _, path := range pages {
		b.do(prefers("light"), chromedp.EmulateViewport(1200, 900), chromedp.Navigate(b.base+path), chromedp.WaitVisible("main"))
		light := b.eval("getComputedStyle(document.body).backgroundColor")
		if script != "" {
			b.do(chromedp.Evaluate(script, nil))
			b.barriers(path, "")
		}
		b.shoot("light-1200", path)
		b.do(chromedp.EmulateViewport(375, 900))
		if over := b.eval("document.documentElement.scrollWidth > innerWidth"); over != "false" {
			t.Errorf("%s is wider than 375 pixels", path)
		}
		b.shoot("light-375", path)
		b.do(prefers("dark"))
		if dark := b.eval("getComputedStyle(document.body).backgroundColor"); dark == light {
			t.Errorf("%s looks the same light and dark: %s", path, dark)
		}
		if script != "" {
			b.barriers(path+", dark", "{runOnly: ['color-contrast']}")
		}
		b.shoot("dark-375", path)
		b.do(chromedp.EmulateViewport(1200, 900))
		if over := b.eval("document.documentElement.scrollWidth > innerWidth"); over != "false" {
			t.Errorf("%s is wider than 1200 pixels", path)
		}
		b.shoot("dark-1200", path)
		if title := b.eval("document.title"); strings.Contains(title, "taken") {
			t.Errorf("%s executed a sample", path)
		}
		if path == "/samples?from=99999" { // its status is an error, which the console reports
			b.mu.Lock()
			b.wrong = nil
			b.mu.Unlock()
		}
		b.clean(path)
	}
}

// TestLinks follows every link of the pages, and loads every picture.
func TestLinks(t *testing.T) {
	b := open(t, "demo")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	if r, err := client.Get(b.address); err != nil {
		t.Fatal(err)
	} else {
		r.Body.Close()
	}
	seen := map[string]bool{}
	for _, path := range []string{"/samples", "/sample?n=3", "/data", "/step"} {
		var links []string
		b.do(chromedp.Navigate(b.base+path),
			chromedp.Evaluate(`[...document.querySelectorAll('[href], [src]')].map(e => e.href || e.src).filter(l => typeof l === 'string')`, &links))
		for _, link := range links {
			if seen[link] {
				continue
			}
			seen[link] = true
			r, err := client.Get(link)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != http.StatusOK {
				t.Errorf("%s leads to %s: %s", path, link, r.Status)
			}
		}
		if bad := b.eval("[...document.images].filter(i => i.complete && i.naturalWidth === 0).map(i => i.src).join(' ')"); bad != "" {
			t.Errorf("%s: pictures that are not shown: %s", path, bad)
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d links were found", len(seen))
	}
}

// TestKeysAndMarks walks through cards with the keyboard, marks some, and finds them again.
func TestKeysAndMarks(t *testing.T) {
	b := open(t, "demo")
	b.do(chromedp.Navigate(b.base+"/samples"), chromedp.WaitVisible(".card .mark"))
	for _, key := range []string{kb.ArrowRight, "m", kb.ArrowRight, kb.ArrowRight, "m"} {
		b.do(chromedp.KeyEvent(key))
	}
	if got := b.eval("document.querySelectorAll('.card.marked').length"); got != "2" {
		t.Errorf("%s cards are marked, want 2", got)
	}
	b.do(chromedp.KeyEvent("n"), chromedp.WaitVisible(`a[rel="prev"]`), chromedp.Navigate(b.base+"/marks"), chromedp.WaitVisible("#marks-form"),
		chromedp.Click("#marks-form button[type=submit]"), chromedp.WaitVisible("main section pre"))
	var text string
	b.do(chromedp.Text("main section pre", &text))
	if n := len(strings.Fields(text)); n != 2 {
		t.Errorf("%d keys are listed, want 2: %q", n, text)
	}
	b.clean("/marks")
}
