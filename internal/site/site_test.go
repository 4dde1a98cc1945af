// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	site "github.com/refold-io/refold/internal/site"
)

// root is the directory of the repository.
var root = filepath.Join("..", "..")

// dir is the folder in which the tests share the site of this repository.
var dir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if dir, err = os.MkdirTemp("", "refold-site-"); err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		return m.Run()
	}())
}

// document is a page of the site, for its tests.
type document struct {
	text string
	ids  map[string]bool
}

// attributes returns the values of attributes in a page. The names are a regular expression.
func (d *document) attributes(names string) []string {
	var values []string
	for _, tag := range regexp.MustCompile(`<[a-z][^<>]*>`).FindAllString(d.text, -1) {
		for _, m := range regexp.MustCompile(`\s(?:`+names+`)="([^"]*)"`).FindAllStringSubmatch(tag, -1) {
			values = append(values, m[1])
		}
	}
	return values
}

var build = sync.OnceValues(func() (map[string]*document, error) {
	if err := site.Generate(root, dir); err != nil {
		return nil, err
	}
	documents := map[string]*document{}
	return documents, fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		d := &document{text: string(text), ids: map[string]bool{}}
		for _, id := range d.attributes("id") {
			d.ids[id] = true
		}
		documents[name] = d
		return err
	})
})

// built returns the pages of the site by their paths.
func built(t *testing.T) map[string]*document {
	t.Helper()
	documents, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// Each link and each image leads to a file of the site and to a heading there, or to a file of the
// repository.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	documents := built(t)
	for name, d := range documents {
		for _, target := range d.attributes("href|src") {
			if mistake := checkTarget(documents, name, target); mistake != "" {
				t.Errorf("%s: %s: %s", name, target, mistake)
			}
		}
	}
}

// checkTarget returns the mistake of a link, "" if it has none.
func checkTarget(documents map[string]*document, from, target string) string {
	if inRepository, ok := strings.CutPrefix(target, "https://github.com/refold-io/refold/"); ok {
		file := regexp.MustCompile(`^(blob|tree)/main/|#.*`).ReplaceAllString(inRepository, "")
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return "the repository has no such file"
		}
		return ""
	}
	if regexp.MustCompile(`^(https?|mailto):`).MatchString(target) {
		return ""
	}
	file, anchor, anchored := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
	}
	info, err := os.Stat(filepath.Join(dir, to))
	switch {
	case err != nil || path.IsAbs(file) || !filepath.IsLocal(to):
		return "the site has no such file"
	case info.IsDir():
		return "a folder has no index without a server"
	case anchored && (documents[to] == nil || !documents[to].ids[anchor]):
		return "the page has no such heading"
	}
	return ""
}

// The policy of the pages forbids inline code, and an anchor names one element.
func TestPagesFollowTheirPolicy(t *testing.T) {
	t.Parallel()
	for name, d := range built(t) {
		if !strings.Contains(d.text, `http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';`) {
			t.Errorf("%s has no policy", name)
		}
		if inline := d.attributes("style|on[a-z]+"); len(inline) > 0 || strings.Contains(d.text, "<style") || strings.Contains(d.text, "<script>") {
			t.Errorf("%s has inline code: %q", name, inline)
		}
		if len(d.ids) != len(d.attributes("id")) {
			t.Errorf("%s has two elements with one id: %q", name, d.attributes("id"))
		}
	}
}

// Each Markdown file of the repository has one entry in the sidebar.
func TestAllPagesAreInTheSidebar(t *testing.T) {
	t.Parallel()
	groups, err := site.Navigation(root)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, g := range groups {
		for _, e := range g.Entries {
			listed = append(listed, e.Path)
		}
	}
	var want []string
	skipped := regexp.MustCompile(`(^|/)(\..+|testdata)$|^(bin|tmp|bank-data|console/assets)$`)
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped.MatchString(name):
			return fs.SkipDir
		case path.Ext(name) == ".md":
			want = append(want, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(listed); !slices.Equal(listed, want) {
		slices.Sort(want)
		for _, name := range want {
			if !slices.Contains(listed, name) {
				t.Errorf("%s has no entry in navigation.go", name)
			}
		}
		if len(listed) != len(slices.Compact(slices.Clone(listed))) {
			t.Errorf("navigation.go lists a page twice: %q", listed)
		}
	}
}

// The index of the search finds the headings and the text of all pages.
func TestIndex(t *testing.T) {
	t.Parallel()
	documents := built(t)
	script, err := os.ReadFile(filepath.Join(dir, "assets", "index.js"))
	if err != nil {
		t.Fatal(err)
	}
	var records []struct{ URL, Group, Page, Title, Text string }
	index := strings.TrimSuffix(strings.TrimPrefix(string(script), "window.searchIndex = "), ";\n")
	if err = json.Unmarshal([]byte(index), &records); err != nil {
		t.Fatal(err)
	}
	pages := map[string]bool{}
	for _, r := range records {
		pages[strings.Split(r.URL, "#")[0]] = true
		if mistake := checkTarget(documents, "index.html", r.URL); mistake != "" {
			t.Errorf("%s: %s", r.URL, mistake)
		}
	}
	if len(pages) != len(documents) {
		t.Errorf("the index has %d pages, the site %d", len(pages), len(documents))
	}
	found := slices.IndexFunc(records, func(r struct{ URL, Group, Page, Title, Text string }) bool {
		return r.URL == "index.html#a-complete-program"
	})
	if found < 0 {
		t.Fatal("the index lacks a section of the first page")
	}
	if r := records[found]; r.Group != "Start" || r.Page != "Refold" || r.Title != "A complete program" || !strings.Contains(r.Text, "You need Go 1.26. Save this") || !strings.Contains(r.Text, "es.Ask(") || strings.Contains(r.Text, "from:") {
		t.Errorf("the section is %+v", r)
	}
}

// repository returns a repository with some files.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ markdown, want string }{
		{"## A `b`, c!", `<h2 id="a-b-c">A <code>b</code>, c!<a href="#a-b-c" title="Link to this section" class="anchor">#</a></h2>`},
		{"## Twice\n## Twice", `<h2 id="twice-1">`},
		{"[x](#twice)", `<a href="#twice">`},
		{"[x](page.md#x)", `<a href="page.html#x">`},
		{"## Ein [Maß](page.md)", `<h2 id="ein-maß">`},
		{"[x](topic)", `<a href="topic/index.html">`},
		{"[x](topic/README.md#y)", `<a href="topic/index.html#y">`},
		{"[x](../main.go)", `<a href="https://github.com/refold-io/refold/blob/main/main.go">`},
		{"[x](../main.go#L7)", `<a href="https://github.com/refold-io/refold/blob/main/main.go#L7">`},
		{"[x](../docs)", `<a href="https://github.com/refold-io/refold/tree/main/docs">`},
		{"[x](https://example.com)", `<a href="https://example.com">`},
		{"| a |\n|---|\n| b |", `<table tabindex="0">`},
		{"| a |\n|--:|\n| b |", `<td align="right">b</td>`},
		{"```go\nvar x = 1\n```", `<pre class="chroma" tabindex="0"><code>`},
		{"```go\nvar x = 1\n```", `<span class="kd">var</span>`},
		{"```sh\nls # all\n```", `<span class="c1"># all</span>`},
		{"```sql\nSELECT 1\n```", `<span class="k">SELECT</span>`},
		{"```yaml\na: 1\n```", `<span class="nt">a</span>`},
		{"```text\n<b> x\n```", `&lt;b&gt; x`},
		{"`a.b/<c>`", `<code>a.<wbr>b/<wbr>&lt;c&gt;</code>`},
		{"<!-- output -->\n```text\n1\n```", `<pre class="chroma output" tabindex="0">`},
		{"<!-- run -->\n```sh\nls\n```", "<p>x</p>\n<pre"},
	} {
		dir := repository(t, map[string]string{"docs/page.md": "# Title\n\nx\n\n" + c.markdown + "\n", "main.go": ""})
		body, err := site.ReadPage(dir, "docs/page.md", "docs/topic/README.md")
		if err != nil || !strings.Contains(body, c.want) {
			t.Errorf("%q is %q, %v, want %q", c.markdown, body, err, c.want)
		}
	}
}

func TestMistakesInPages(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"# Title\n\n[x](gone.md)\n":   "the link to gone.md",
		"# Title\n\n<div>x</div>\n":   "no raw HTML",
		"# Title\n\nx <b>y</b>\n":     "no raw HTML",
		"x\n":                         "does not begin with a title",
		"## Small\n\n# Title later\n": "does not begin with a title",
	} {
		if _, err := site.ReadPage(repository(t, map[string]string{"page.md": text}), "page.md", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", text, err, want)
		}
	}
}

func TestRelative(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"README.md", "docs/faq.html", "docs/faq.html"},
		{"docs/faq.md", "index.html", "../index.html"},
		{"docs/faq.md", "docs/api.html", "api.html"},
		{"docs/tutorial/1-order/README.md", "docs/tutorial/2-tests/index.html", "../2-tests/index.html"},
		{"docs/tutorial/1-order/README.md", "examples/bank/index.html", "../../../examples/bank/index.html"},
	} {
		if got := site.Relative(c[0], c[1]); got != c[2] {
			t.Errorf("from %s to %s is %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
