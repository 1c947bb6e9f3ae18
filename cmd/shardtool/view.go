package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/view"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
)

type viewerFlags struct {
	order      orderFlags
	checkpoint string
	listen     string
	noOpen     bool
	tokenizer  string
}

func newView() *cobra.Command {
	var f viewerFlags
	cmd := &cobra.Command{
		Use:   "view DATASET|MIX.yaml",
		Short: "Look at samples, and at what a step reads, in a browser",
		Long: `Serve pages that show a data set or a mix, and open them in the browser: samples in storage order, in the order of training, by key,
by view or by an expression; one sample with its fields and attributes; the totals, fields and attributes of the data set; and what a rank
reads in a step, computed from the order flags or from a checkpoint. Marked samples become a file of keys for select and remove.

The server only reads. It listens on the loopback interface, and answers only requests with the token in the address that it
prints. Ctrl-C ends it.`,
		Example: "  shardtool view photos/\n  shardtool view 's3://bucket/photos#clean' --no-open\n" +
			"  shardtool view mix.yaml --checkpoint run/state.json --shuffle --global-batch 4096\n" +
			"  ssh -L 8080:127.0.0.1:8080 host shardtool view photos/ --no-open --listen 127.0.0.1:8080",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.checkpoint != "" {
				f.order.ins = []string{f.checkpoint}
			}
			if err := f.order.fill(); err != nil {
				return err
			}
			return f.order.explain(f.run(cmd, args[0]))
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.noOpen, "no-open", false, "print the address without opening a browser")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:0", "listen at this `HOST:PORT`; port 0 is any free port")
	fl.StringVar(&f.checkpoint, "checkpoint", "", "show the steps of the run of this checkpoint, from its next step on")
	fl.StringVar(&f.tokenizer, "tokenizer", "", "show token ids as text, by this tokenizer.json")
	titled(cmd, "Pages")
	f.order.add(cmd)
	f.order.addUnits(cmd)
	f.order.layers.add(cmd)
	f.order.mix.add(cmd)
	return cmd
}

func (f *viewerFlags) run(cmd *cobra.Command, arg string) error {
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	o := view.Options{Title: shown(objstore.NewAddress(arg).String()), Rank: f.order.opt.Rank, World: f.order.opt.World,
		Token: rand.Text()}
	if f.tokenizer != "" {
		var err error
		if o.Tokenizer, err = view.ReadTokenizer(f.tokenizer); err != nil {
			return usagef("--tokenizer: %w", err)
		}
	}
	q, err := f.order.ask(arg)
	if err != nil {
		return err
	}
	q.change.AsSaved = q.from != nil && !q.change.Mix
	f.order.anyEpoch()
	sources, err := f.order.open(ctx, &q, reader.Options{Memory: viewMemory, Fields: f.order.layers.fields})
	if err != nil {
		return err
	}
	defer sources.Close()
	for name, set := range sources.All() {
		if set == nil { // removed from the mix
			continue
		}
		i := slices.IndexFunc(q.spec.Sources, func(s reader.SourceSpec) bool { return s.Name == name })
		o.Sources = append(o.Sources, view.Source{Name: name, Address: objstore.NewAddress(q.spec.Sources[i].Data),
			Set: set})
	}
	if len(o.Sources) == 0 {
		return &exitError{exitNotFound, fmt.Errorf("%s has no data set to show", arg)}
	}
	o.GlobalBatch = f.order.opt.GlobalBatch
	if q.from != nil && q.from.GlobalBatch() > 0 && !f.order.changed("global-batch") {
		o.GlobalBatch = q.from.GlobalBatch()
	}
	o.Run = func(ctx context.Context) (*reader.Run, error) { return f.order.resolve(ctx, io.Discard, &q, sources) }
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usagef("--listen %q: write an address such as 127.0.0.1:8080", f.listen)
	}
	host = cmp.Or(host, "127.0.0.1") // not visible from other hosts
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return usagef("--listen %s: %w", f.listen, err)
	}
	_, port, _ = net.SplitHostPort(l.Addr().String())
	o.Listen = net.JoinHostPort(host, port)
	pages := view.New(o)
	defer pages.Close()
	address := "http://" + o.Listen + "/?token=" + o.Token
	fmt.Fprintln(cmd.OutOrStdout(), address)
	if !f.noOpen {
		defer openBrowser(address)()
	}
	fmt.Fprintln(stderr, "serving until Ctrl-C")
	return serveUntil(ctx, l, pages)
}

// viewMemory bounds the blocks that the pages hold.
const viewMemory = 64 << 20

// serveUntil serves until the context ends, which is no error.
func serveUntil(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10,
		WriteTimeout:   3 * time.Minute, // until the first byte; view.Server then gives each part its own time
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(short); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}

// openBrowser opens an address in the user's browser if there is a program for that. The address
// has the token, and every user of the host can read the arguments of a process: the program is
// given a file that only this user can read, and that leads there. remove removes the file.
func openBrowser(address string) (remove func()) {
	file, err := os.CreateTemp("", "shardtool-view-*.html") // with mode 0600
	if err != nil {
		return func() {}
	}
	remove = func() { _ = os.Remove(file.Name()) }
	_, err = fmt.Fprintf(file, "<!doctype html><meta charset=utf-8><title>shardtool view</title>"+
		`<meta name=referrer content=no-referrer><meta http-equiv=refresh content="0;url=%[1]s"><a href="%[1]s">shardtool view</a>`+"\n", html.EscapeString(address))
	if err = cmp.Or(err, file.Close()); err == nil {
		program := cmp.Or(map[string]string{"darwin": "open"}[runtime.GOOS], "xdg-open")
		cmd := exec.Command(program, file.Name())
		if cmd.Start() == nil {
			go func() { _ = cmd.Wait() }()
		}
	}
	return remove
}
