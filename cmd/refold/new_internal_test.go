// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"go/format"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	_ "github.com/refold-io/refold/eventsourcing/eventsourcingtest" // the module cache must have the modules of a new service
	"github.com/refold-io/refold/internal/testkit/pgtest"
)

// checkoutDir is the directory of this module.
const checkoutDir = "../.."

// runNew runs "refold new" in a directory, with this module and without the network.
func runNew(t *testing.T, dir string, args ...string) (out string, err error) {
	t.Helper()
	root, err := filepath.Abs(checkoutDir)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return inDir(t, dir, nil, program, append([]string{"new", "--replace", root}, args...)...)
}

func inDir(t *testing.T, dir string, env []string, program string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(offline(), env...)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// offline is an environment in which the go command uses the module cache and not the network.
func offline() []string {
	return append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOPROXY=off", "GOWORK=off", "PATH="+os.Getenv("PATH")+":/usr/local/go/bin")
}

// A new module passes its checks and runs. A killed service has its state after a restart.
func TestNew(t *testing.T) {
	t.Parallel()
	for store, database := range map[string]func(t *testing.T) string{
		"leveldb":  func(*testing.T) string { return "" },
		"postgres": func(t *testing.T) string { t.Helper(); return pgtest.DSN(t) },
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			if out, err := runNew(t, tmp, "example.com/acme/tea-shop", "--store", store); err != nil {
				t.Fatalf("refold new: %v\n%s", err, out)
			}
			dir := filepath.Join(tmp, "tea-shop")
			checkFormat(t, dir)
			for _, args := range []string{"vet ./...", "test ./...", "build -o service ."} {
				if out, err := inDir(t, dir, nil, "go", strings.Fields(args)...); err != nil {
					t.Fatalf("go %s: %v\n%s", args, err, out)
				}
			}
			dsn := database(t)
			s := startService(t, dir, dsn)
			s.want("POST", "/items/tea/receive", `{"units": 5}`, `{"units":5}`)
			s.want("POST", "/items/tea/take", `{"units": 2}`, `{"units":3}`)
			s.want("GET", "/ready", "", "ok")
			if err := s.end(syscall.SIGKILL); err == nil {
				t.Error("the service ended with status 0 after SIGKILL")
			}
			s = startService(t, dir, dsn)
			s.want("GET", "/items/tea", "", `{"units":3}`)
			s.want("POST", "/items/tea/take", `{"units": 1}`, `{"units":2}`)
			if err := s.end(syscall.SIGTERM); err != nil {
				t.Errorf("the service ended with %v after SIGTERM, want status 0\n%s", err, s.log.String())
			}
		})
	}
}

// checkFormat checks that the Go files are formatted and that no file has an unused action of a template.
func checkFormat(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("{{")) || bytes.Contains(text, []byte("no value")) || !bytes.HasSuffix(text, []byte("\n")) {
			t.Errorf("%s is not a complete file:\n%s", path, text)
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		formatted, err := format.Source(text)
		if err == nil && !bytes.Equal(formatted, text) {
			t.Errorf("%s is not formatted; gofmt writes\n%s", path, formatted)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

type service struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	log *bytes.Buffer // complete after end
	out chan error    // the end of the log
}

// startService starts the program in a directory and waits until it listens.
func startService(t *testing.T, dir, dsn string) *service {
	t.Helper()
	s := &service{t: t, log: new(bytes.Buffer), out: make(chan error, 1)}
	s.cmd = exec.CommandContext(t.Context(), filepath.Join(dir, "service"), "-addr", "127.0.0.1:0")
	s.cmd.Dir, s.cmd.Env = dir, append(os.Environ(), "DATABASE_URL="+dsn)
	stderr, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(io.TeeReader(stderr, s.log))
	for s.url == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the service did not start: %v, %v\n%s", err, s.cmd.Wait(), s.log)
		}
		if m := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(line); m != nil {
			s.url = m[1]
		}
	}
	go func() {
		_, err := io.Copy(io.Discard, lines)
		s.out <- err
	}()
	return s
}

// end sends a signal and returns the exit status.
func (s *service) end(signal os.Signal) error {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
	return errors.Join(<-s.out, s.cmd.Wait())
}

func (s *service) want(method, path, body, want string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Close = true // goleak would find an idle connection
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // the body is read
	got, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || strings.TrimSpace(string(got)) != want {
		s.t.Errorf("%s %s %s: status %d, %s, %v; want 200, %s", method, path, body, response.StatusCode, got, err, want)
	}
}

// Files that exist stay unchanged, and then no other file is written.
func TestNewOverwritesNothing(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	own := filepath.Join(tmp, "shop", "README.md")
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := runNew(t, tmp, "shop")
	if err == nil || !strings.Contains(out, "the directory shop already has README.md; nothing is written") {
		t.Errorf("refold new: %v, %s; want an error that names README.md", err, out)
	}
	text, err := os.ReadFile(own)
	entries, failed := os.ReadDir(filepath.Dir(own))
	if err != nil || failed != nil || string(text) != "mine\n" || len(entries) != 1 {
		t.Errorf("the directory has %v, and README.md is %q, %v, %v; want README.md only, unchanged", entries, text, err, failed)
	}
}

func TestNewArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                         `expected "<name>"`,
		"Shop":                     `name "Shop": the name of a service has lower-case letters`,
		"shop_":                    `name "shop_"`,
		"4shop":                    `name "4shop"`,
		"..":                       `name ".."`,
		"a/../shop":                `".." cannot be an element`,
		"/tmp/shop":                `"" cannot be an element`,
		"acme/shop":                `a module path begins with a host name`,
		"example.com/a b/shop":     `"a b" cannot be an element`,
		"net":                      `name "net": the standard library has a package of that name`,
		"cmd":                      `name "cmd": the standard library`,
		"shop --store mysql":       `--store must be one of "leveldb","postgres"`,
		"shop --replace /nonsense": `--replace: /nonsense contains no module`,
	} {
		p := program()
		var stderr strings.Builder
		p.Stdout, p.Stderr = io.Discard, &stderr
		var all []string
		for i, arg := range strings.Split(args, " --") {
			if i > 0 {
				name, value, _ := strings.Cut(arg, " ")
				all = append(all, "--"+name, value)
			} else if arg != "" {
				all = append(all, arg)
			}
		}
		if status := p.Run(t.Context(), append([]string{"new"}, all...)); status != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("refold new %s: status %d, %q; want 2 and %q", args, status, stderr.String(), want)
		}
	}
}

// The go.mod of a new module has the version of Go that this module has.
func TestNewGoVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(checkoutDir, "go.mod"))
	if err != nil || !strings.Contains(string(text), "\ngo "+goVersion+"\n") {
		t.Errorf("go.mod does not have the version %s: %v", goVersion, err)
	}
}

// The pages to which the README of a new module links exist.
func TestNewLinks(t *testing.T) {
	t.Parallel()
	text, err := templates.ReadFile("template/README.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`blob/main/([^)#]+)`).FindAllSubmatch(text, -1)
	if len(links) == 0 {
		t.Error("the README has no links")
	}
	for _, m := range links {
		if _, err = os.Stat(filepath.Join(checkoutDir, string(m[1]))); err != nil {
			t.Error(err)
		}
	}
}
