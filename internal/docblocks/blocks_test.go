// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package docblocks_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/refold-io/refold/internal/docblocks"
)

var update = flag.Bool("update", false, "write the blocks of the source and changed outputs into the pages")

// root is the directory of the module.
var root = filepath.Join("..", "..")

// notConverted are the pages with Go blocks and commands that have no mark yet. The list may only
// shrink.
var notConverted = []string{}

// mostNotRun is the greatest number of blocks with commands that no test runs: they need a server, a
// cluster, or a long time.
const mostNotRun = 20

// data are the languages of blocks that need no mark.
var data = []string{"text", "json", "yaml", "promql", "sql", "ini", "toml", "diff", "dockerfile", "html", "mermaid"}

// step is a part of a page that a test runs.
type step struct {
	block  *block
	dir    string // for commands: below the directory of the page, or "repository"
	output *block // nil without one
}

// isProgram reports whether a Go block is a complete file, and whether that is a program.
func isProgram(text string) (file, program bool) {
	m := regexp.MustCompile(`(?m)^package (\w+)`).FindStringSubmatch(text)
	return m != nil, m != nil && m[1] == "main"
}

// check returns the mistakes in the marks of a page, the blocks that have no mark, the steps to run,
// and the number of blocks that are not run.
func check(p *page) (mistakes []string, unmarked int, steps []*step, notRun int) {
	wrong := func(b *block, format string, args ...any) {
		mistakes = append(mistakes, fmt.Sprintf("%s:%d: ", p.path, b.first)+fmt.Sprintf(format, args...))
	}
	var last *step
	for _, b := range p.blocks {
		previous := last
		last = nil
		in, run := strings.CutPrefix(b.mark, "run in ")
		_, from := strings.CutPrefix(b.mark, "from: ")
		_, excused := strings.CutPrefix(b.mark, "not run: ")
		transcript := slices.Contains(data, b.lang) && regexp.MustCompile(`(?m)^\$ `).MatchString(b.text)
		switch {
		case b.mark == "output":
			if previous == nil {
				wrong(b, "the output follows neither a program nor commands")
				continue
			}
			previous.output = b
		case b.mark == "run" || run:
			if b.lang != "sh" {
				wrong(b, "commands are blocks of the language sh, not %q", b.lang)
			}
			last = &step{block: b, dir: in}
			if !run {
				last.dir = "."
			}
			steps = append(steps, last)
		case excused:
			notRun++
			last = previous // a page may show how to start its program
		case b.lang == "go":
			file, program := isProgram(b.text)
			if !from && !file {
				unmarked++
				wrong(b, "the Go code is no complete file and has no mark <!-- from: file#name -->")
			}
			if program || file && !from {
				last = &step{block: b}
				steps = append(steps, last)
			}
		case from, slices.Contains(data, b.lang) && !transcript:
		case b.lang == "":
			unmarked++
			wrong(b, "the block has no language, such as text")
		default:
			unmarked++
			wrong(b, "commands need a mark: <!-- run --> or <!-- not run: reason -->")
		}
	}
	return mistakes, unmarked, steps, notRun
}

var pages = sync.OnceValues(func() ([]*page, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []*page
	for name := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted
		}
		if err != nil {
			return nil, err
		}
		p, err := parsePage(name, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
})

// eachPage calls f with each page of the repository.
func eachPage(t *testing.T, f func(p *page)) {
	t.Helper()
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("the repository has %d pages, want at least 20", len(all))
	}
	for _, p := range all {
		f(p)
	}
}

// rewritten holds the new texts of blocks.
var (
	rewritten = map[*page]map[*block]string{}
	rewriting sync.Mutex
)

// rewrite writes other texts of blocks into a page, with those of other tests.
func rewrite(t *testing.T, p *page, texts map[*block]string) {
	t.Helper()
	if len(texts) == 0 {
		return
	}
	rewriting.Lock()
	defer rewriting.Unlock()
	if rewritten[p] == nil {
		rewritten[p] = map[*block]string{}
	}
	maps.Copy(rewritten[p], texts)
	if err := os.WriteFile(filepath.Join(root, p.path), []byte(p.with(rewritten[p])), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d blocks written; run the test again", p.path, len(texts))
}

// Every block has a mark, or is a complete file, or is data.
func TestMarks(t *testing.T) {
	t.Parallel()
	excused := 0
	for _, name := range notConverted {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("notConverted names a page that does not exist: %v", err)
		}
	}
	eachPage(t, func(p *page) {
		mistakes, unmarked, _, notRun := check(p)
		excused += notRun
		if slices.Contains(notConverted, p.path) {
			if unmarked == 0 {
				t.Errorf("%s: all blocks have a mark: remove the page from notConverted", p.path)
			}
			return
		}
		for _, mistake := range mistakes {
			t.Error(mistake)
		}
	})
	if excused > mostNotRun {
		t.Errorf("%d blocks are not run, at most %d are allowed", excused, mostNotRun)
	}
}

// Blocks equal the source that they name.
func TestBlocksEqualSource(t *testing.T) {
	t.Parallel()
	eachPage(t, func(p *page) {
		changed := map[*block]string{}
		for _, b := range p.blocks {
			mark, from := strings.CutPrefix(b.mark, "from: ")
			if !from {
				continue
			}
			want, err := fromSource(root, mark)
			switch {
			case err != nil:
				t.Errorf("%s:%d: %v", p.path, b.first, err)
			case b.text != want && *update:
				changed[b] = want
			case b.text != want:
				t.Errorf("%s:%d: the block differs from %s; go test ./internal/docblocks -update writes it", p.path, b.first, mark)
			}
		}
		rewrite(t, p, changed)
	})
}

// Links lead to files and headings of the repository.
func TestLinks(t *testing.T) {
	t.Parallel()
	anchors := map[string]docblocks.Anchors{}
	eachPage(t, func(p *page) { anchors[p.path] = p.anchors() })
	eachPage(t, func(p *page) {
		for _, l := range p.links() {
			if mistake := checkLink(p.path, l.target, anchors); mistake != "" {
				t.Errorf("%s:%d: the link to %s: %s", p.path, l.line, l.target, mistake)
			}
		}
	})
}

// checkLink returns the mistake of a link, "" if it has none.
func checkLink(from, target string, anchors map[string]docblocks.Anchors) string {
	file, anchor, anchored := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
	}
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil || strings.HasPrefix(to, "..") {
		return "the repository has no such file"
	}
	if anchored && !anchors[to][anchor] {
		return "the page has no such heading"
	}
	return ""
}

// Programs of the pages compile, and print the output that the page shows. Commands succeed, and do
// the same.
func TestProgramsAndCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	overlay := map[string]string{}
	packages := []string{"./cmd/refold", "./examples/bank"}
	programs := map[*block]string{}
	eachPage(t, func(p *page) {
		_, _, steps, _ := check(p)
		for _, s := range steps {
			if s.dir != "" || strings.HasPrefix(s.block.mark, "from: ") && s.output == nil {
				continue
			}
			name := fmt.Sprintf("%s_%d", regexp.MustCompile(`\W+`).ReplaceAllString(p.path, "_"), s.block.first)
			source := filepath.Join(dir, name+".go")
			if err := os.WriteFile(source, []byte(s.block.text), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay[filepath.Join(absolute(t, root), "internal", "docblocks", "pages", name, "main.go")] = source
			packages = append(packages, "./internal/docblocks/pages/"+name)
			programs[s.block] = filepath.Join(dir, "bin", name)
		}
	})
	replaced, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(filepath.Join(dir, "overlay.json"), replaced, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "bin") + "/"}, packages...)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the programs of the pages do not compile: %v\n%s", err, out)
	}
	eachPage(t, func(p *page) {
		_, _, steps, _ := check(p)
		steps = slices.DeleteFunc(steps, func(s *step) bool { return s.dir == "" && s.output == nil })
		if len(steps) == 0 {
			return
		}
		t.Run(p.path, func(t *testing.T) {
			t.Parallel()
			runPage(t, p, steps, filepath.Join(dir, "bin"), programs)
		})
	})
}

// runPage runs the steps of a page in order.
func runPage(t *testing.T, p *page, steps []*step, bin string, programs map[*block]string) {
	t.Helper()
	dir := t.TempDir()
	changed := map[*block]string{}
	for _, s := range steps {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", s.block.text)
		cmd.Dir = filepath.Join(dir, s.dir)
		switch s.dir {
		case "":
			cmd = exec.CommandContext(t.Context(), programs[s.block])
			cmd.Dir = t.TempDir()
		case "repository":
			cmd.Dir = root
		}
		cmd.Env = environment(bin)
		out, err := output(cmd)
		if err != nil {
			t.Errorf("%s:%d: %v\n%s", p.path, s.block.first, err, out)
			return
		}
		if s.output == nil || sameOutput(s.output.text, out) {
			continue
		}
		if *update {
			changed[s.output] = out
			continue
		}
		t.Errorf("%s:%d: the output differs from the page, which shows\n%s\ngot\n%s", p.path, s.block.first, s.output.text, out)
	}
	rewrite(t, p, changed)
}

// output runs a command and ends all processes that it has started.
func output(cmd *exec.Cmd) (string, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	file, err := os.CreateTemp("", "docblocks") // processes in the background may keep it open
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // a file in the directory for such files
	defer file.Close()           //nolint:errcheck // it has been read
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	if cmd.Process != nil {
		_ = end()
	}
	out, failed := os.ReadFile(file.Name())
	return string(out), errors.Join(err, failed)
}

// environment is that of this process, with the command refold in the path and without journals.
func environment(bin string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "REFOLD_") || strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "PATH=")
	})
	return append(env, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "NO_COLOR=1")
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// The program of the README compiles and runs in a module of its own, as a reader pastes it.
func TestProgramOfREADMEInItsOwnModule(t *testing.T) {
	t.Parallel()
	var program *step
	eachPage(t, func(p *page) {
		if p.path != "README.md" {
			return
		}
		_, _, steps, _ := check(p)
		i := slices.IndexFunc(steps, func(s *step) bool { return s.dir == "" && s.output != nil })
		if i < 0 {
			t.Fatal("README.md has no program with its output")
		}
		program = steps[i]
	})
	dir := t.TempDir()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/refold-io/refold"
	own := strings.Replace(string(mod), "module "+module+"\n", "module example.com/hello\n", 1)
	own += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, absolute(t, root))
	files := map[string]string{"go.mod": own, "go.sum": string(sum), "main.go": program.block.text}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err = os.WriteFile(filepath.Join(dir, name), []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	cmd.Dir = dir
	cmd.Env = append(environment(dir), "GOPROXY=off", "GOWORK=off")
	out, err := output(cmd)
	if err != nil || !sameOutput(program.output.text, out) {
		t.Errorf("the program of the README: %v, prints\n%s\nwant\n%s", err, out, program.output.text)
	}
}

// docs/examples.md lists each example of the public packages, and no other ones.
func TestIndexOfExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "examples.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Example\\w*)` in \\S+\\]\\(\\.\\./(\\S+)\\)").FindAllStringSubmatch(string(text), -1) {
		listed[m[2]+" "+m[1]] = true
	}
	cmd := exec.CommandContext(t.Context(), "git", "grep", "-E", "--untracked", "^func Example", "--", "*_test.go", ":!internal", ":!examples", ":!docs/tutorial")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(\S+):func (Example\w*)\(`).FindAllStringSubmatch(string(out), -1) {
		example := m[1] + " " + m[2]
		if !listed[example] {
			t.Errorf("docs/examples.md does not list %s", example)
		}
		delete(listed, example)
	}
	for example := range listed {
		t.Errorf("docs/examples.md lists %s, which does not exist", example)
	}
}
