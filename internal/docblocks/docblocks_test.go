// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package docblocks_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/docblocks"
)

// parsed parses a page whose fences are written with apostrophes.
func parsed(t *testing.T, text string) *page {
	t.Helper()
	p, err := parsePage("docs/page.md", strings.ReplaceAll(text, "'''", "```"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheckFindsMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, mistake string }{
		{"'''go\nx := 1\n'''", "the Go code is no complete file"},
		{"- item\n\n  '''go\n  x := 1\n  '''", "the Go code is no complete file"},
		{"<!-- from: a.go#x -->\n'''go\nx := 1\n'''", ""},
		{"<!-- from: a.go#x -->\n\n'''go\nx := 1\n'''", "the Go code is no complete file"},
		{"'''go\npackage main\n'''\n<!-- output -->\n'''text\n1\n'''", ""},
		{"<!-- output -->\n'''text\n1\n'''", "the output follows neither"},
		{"<!-- run -->\n'''sh\ntrue\n'''\n'''json\n1\n'''\n<!-- output -->\n'''text\n1\n'''", "the output follows neither"},
		{"<!-- run -->\n'''sh\ntrue\n'''\n<!-- not run: no -->\n'''sh\n1\n'''\n<!-- output -->\n'''text\n1\n'''", ""},
		{"'''sh\ntrue\n'''", "commands need a mark"},
		{"'''console\ntrue\n'''", "commands need a mark"},
		{"'''text\n$ refold\n'''", "commands need a mark"},
		{"<!-- not run: needs a server -->\n'''text\n$ refold\n'''", ""},
		{"<!-- run -->\n'''bash\ntrue\n'''", "commands are blocks of the language sh"},
		{"'''\ntrue\n'''", "the block has no language"},
		{"'''sql\nSELECT 1\n'''", ""},
	} {
		mistakes, _, _, _ := check(parsed(t, c.text))
		if all := strings.Join(mistakes, "\n"); (c.mistake == "") != (all == "") || !strings.Contains(all, c.mistake) {
			t.Errorf("%q has the mistakes %q, want %q", c.text, all, c.mistake)
		}
	}
	if _, err := parsePage("page.md", "```go\n"); err == nil {
		t.Error("a block without an end is accepted")
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	_, _, steps, notRun := check(parsed(t, "<!-- run -->\n'''sh\n1\n'''\n<!-- run in shop -->\n'''sh\n2\n'''\nprints\n\n<!-- output -->\n'''text\n3\n'''\n<!-- not run: no -->\n'''sh\n4\n'''\n"))
	if len(steps) != 2 || notRun != 1 || steps[0].dir != "." || steps[0].output != nil || steps[1].dir != "shop" || steps[1].output.text != "3\n" {
		t.Errorf("the page has the steps %+v", steps)
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	p := parsed(t, "a\n'''text\n1\n2\n'''\n- b\n\n  '''text\n  3\n  '''\nc")
	got := p.with(map[*block]string{p.blocks[0]: "x\n", p.blocks[1]: "y\n\nz\n"})
	if want := strings.ReplaceAll("a\n'''text\nx\n'''\n- b\n\n  '''text\n  y\n\n  z\n  '''\nc", "'''", "```"); got != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
}

func TestSameOutput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shown, output string
		same          bool
	}{
		{"1\n2\n", "1\n2\n", true},
		{"1\n", "1\n2\n", false},
		{"1\n", "2\n", false},
		{"1\n2\n", "1\n", false},
		{"…\n2\n", "a\nb\n2\n", true},
		{"…\n2\n", "2\n", true},
		{"…\n2\n", "2\n3\n", false},
		{"1 …\n", "1 a b\n", true},
		{"1 …\n", "2 a b\n", false},
		{"a.c\n", "abc\n", false},
		{"ok  \tshop\t0.012s\n", "ok  \tshop\t(cached)\n", true},
		{"took 3ms\n", "took 1m12.5s\n", true},
		{"took 3ms\n", "took 3 apples\n", false},
		{"at 2026-01-02T03:04:05Z\n", "at 2027-11-12 13:14:15.123+01:00\n", true},
		{"id 0123456789abcdef\n", "id fedcba98\n", true},
		{"listens on 127.0.0.1:54321\n", "listens on 127.0.0.1:12345\n", true},
		{"listens on 127.0.0.1:8080\n", "listens on 127.0.0.1:8081\n", false},
		{"a  b\n", "a      b   \n", true},
		{"a\n", "go: downloading example.com/x v1.0.0\na\n", true},
	} {
		if got := sameOutput(c.shown, c.output); got != c.same {
			t.Errorf("%q is shown as %q: same is %v", c.output, c.shown, got)
		}
	}
}

func TestFromSource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := licence + `// Package p has everything.
package p

type (
	// One is first.
	One struct {
		A int
	}
	Two[T any] int
)

// three and four.
const three, four = 3, 4

// Five is a method.
func (o *One) Five() int {
	// region part
	x := o.A //nolint:lll // long
	if x > 0 {
		// region inner
		x++
		// endregion
	}
	// endregion
	return x
}

func (t Two[T]) Six() {}
`
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for mark, want := range map[string]string{
		"p.go#One":        "// One is first.\ntype One struct {\n\tA int\n}\n",
		"p.go#Two":        "type Two[T any] int\n",
		"p.go#four":       "// three and four.\nconst three, four = 3, 4\n",
		"p.go#part":       "x := o.A\nif x > 0 {\n\tx++\n}\n",
		"p.go#inner,Two":  "x++\n\ntype Two[T any] int\n",
		"p.go#Two.Six":    "func (t Two[T]) Six() {}\n",
		"p.go#One.Five{}": "x := o.A\nif x > 0 {\n\tx++\n}\nreturn x\n",
	} {
		if got, err := fromSource(dir, mark); got != want || err != nil {
			t.Errorf("%s is %q, %v, want %q", mark, got, err, want)
		}
	}
	if got, err := fromSource(dir, "p.go"); err != nil || !strings.HasPrefix(got, "// Package p has") || strings.Contains(got, "nolint") {
		t.Errorf("the file is %q, %v", got, err)
	}
	for _, mark := range []string{"p.go#Five", "p.go#Seven", "q.go#One"} {
		if got, err := fromSource(dir, mark); err == nil {
			t.Errorf("%s is %q, want an error", mark, got)
		}
	}
}

func TestLinksAndAnchors(t *testing.T) {
	t.Parallel()
	p := parsed(t, "# A [`b`](c.md), d!\n\n## A `b`, d\n\n[x](e.md#f) and `[y](no.md)` ![z](g.svg \"title\") <img src=\"h.svg\"> [w](https://example.com)\n\n'''text\n# no\n[x](no.md)\n'''\n[last](#i)\n")
	var got []string
	for _, l := range p.links() {
		got = append(got, l.target)
	}
	if want := []string{"c.md", "e.md#f", "g.svg", "h.svg", "#i"}; !slices.Equal(got, want) {
		t.Errorf("the links are %q, want %q", got, want)
	}
	if a := p.anchors(); len(a) != 2 || !a["a-b-d"] || !a["a-b-d-1"] {
		t.Errorf("the anchors are %v", a)
	}
	anchors := map[string]docblocks.Anchors{"README.md": {"here": true}}
	for target, mistake := range map[string]string{
		"go.mod": "", "docs": "", "#here": "", "README.md#here": "", "#there": "the page has no such heading", "gone.md": "the repository has no such file",
		"../README.md": "the repository has no such file",
	} {
		if got := checkLink("README.md", target, anchors); got != mistake {
			t.Errorf("the link to %s: %q, want %q", target, got, mistake)
		}
	}
}
