// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
)

// The files of the console. assets/THIRD-PARTY.md lists those of other projects.
//
//go:embed assets/*.js assets/*.css assets/*.svg templates/*.html
var files embed.FS

// assets serves the embedded files under names that contain a hash of their content, so that
// browsers may keep them.
type assets struct {
	content map[string][]byte // by hashed name
	hashed  map[string]string // the address, by name
	pages   map[string]*template.Template
}

func loadAssets(prefix string) *assets {
	a := &assets{content: map[string][]byte{}, hashed: map[string]string{}, pages: map[string]*template.Template{}}
	entries, err := files.ReadDir("assets")
	mustEmbed(err)
	for _, e := range entries {
		content, failed := files.ReadFile("assets/" + e.Name())
		mustEmbed(failed)
		sum := sha256.Sum256(content)
		name := hex.EncodeToString(sum[:6]) + "-" + e.Name()
		a.content[name], a.hashed[e.Name()] = content, prefix+"assets/"+name
	}
	base := template.New("base").Funcs(a.functions(prefix))
	base, err = base.ParseFS(files, "templates/base.html")
	mustEmbed(err)
	entries, err = files.ReadDir("templates")
	mustEmbed(err)
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".html")
		if name == "base" {
			continue
		}
		page, failed := base.Clone()
		mustEmbed(failed)
		a.pages[name], err = page.ParseFS(files, "templates/"+e.Name())
		mustEmbed(err)
	}
	return a
}

// mustEmbed panics if a file that is part of the program is unusable.
func mustEmbed(err error) {
	if err != nil {
		panic(fmt.Sprintf("console: embedded files: %v", err))
	}
}

func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	content, ok := a.content[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(content)
}

// execute renders a template of a page.
func (a *assets) execute(page, name string, v *view) (string, error) {
	var b bytes.Buffer
	err := a.pages[page].ExecuteTemplate(&b, name, v)
	return b.String(), err
}

// render answers a request with a template of a page.
func (c *Console) render(w http.ResponseWriter, status int, page, name string, v *view) {
	text, err := c.assets.execute(page, name, v)
	if err != nil {
		c.opts.Logger.Error("console: render", slog.String("page", page), slog.Any("error", err))
		http.Error(w, "console: the page cannot be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) //nolint:gosec // html/template has escaped the text
}

// functions are the functions of the templates.
func (a *assets) functions(prefix string) template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) string { return a.hashed[name] },
		"root":  func() string { return prefix },
		"num":   number[int],
		"unum":  number[uint64],
		"count": count,
		"join":  func(list []string) string { return strings.Join(list, ", ") },
		"name":  nameOf,
		"names": names,
		"lower": strings.ToLower,
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"clock": func(t time.Time) string { return t.UTC().Format("15:04:05") },
		"day":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"since": func(now, t time.Time) string { return lasting(now.Sub(t)) },
		"page": func(name string) string { // the path of a page
			if name == "overview" {
				return ""
			}
			return name
		},
		"link":   func(page string, query ...string) string { return link(prefix, page, query...) },
		"entity": func(id string) string { return prefix + "entities/" + url.PathEscape(id) },
		"shardlink": func(typ string, shard sharding.Shard) string {
			return link(prefix, "shards", "type", typ, "shard", strconv.FormatUint(uint64(shard), 10)) + "#shard"
		},
		"tree":    tree,
		"text":    func(o journal.Offset) string { return string(o) },
		"short":   func(s string) string { return s[:min(len(s), 12)] },
		"brief":   brief,
		"bytes":   sizeText[int],
		"ubytes":  sizeText[uint64],
		"lasting": lasting,
		"rate":    rateText,
		"moves":   moveText,
		"millis":  millisText,
		"traceurl": func(pattern, trace string) string {
			return strings.ReplaceAll(pattern, "{trace}", url.QueryEscape(trace))
		},
	}
}

// link returns the address of a page with pairs of names and values as its query. Empty values are
// left out.
func link(prefix, page string, query ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	if len(q) == 0 {
		return prefix + page
	}
	return prefix + page + "?" + q.Encode()
}

// number returns a number with commas.
func number[T int | uint64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rateText returns a number per second.
func rateText(x float64) string {
	if x < 10 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return number(int(x))
}

// millisText returns a duration in milliseconds with three digits or more.
func millisText(d time.Duration) string {
	if d >= 100*time.Millisecond {
		return number(int(d.Round(time.Millisecond).Milliseconds()))
	}
	return fmt.Sprintf("%.3g", float64(d.Microseconds())/1000)
}

// lasting returns a duration with one or two units.
func lasting(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second && d > 0:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// view is the input of the templates.
type view struct {
	Title string
	// Page is the name of the page, empty outside of pages.
	Page    string
	User    string
	MayAct  bool
	Signed  bool // the browser has a session that it can end
	Theme   string
	Self    string // the address of the page with its query
	Query   url.Values
	Nav     []navEntry
	Picture *picture
	// Part is the part of the page that is requested, empty for the whole page.
	Part     string
	TraceURL string
	// Problem is the reason why the page is incomplete.
	Problem string
	Data    any

	stream *tailState // kept between the parts of one stream, nil outside of streams
}

type navEntry struct {
	Name, Title, Key string
	Current          bool
}

// StreamURL is the address of the stream of the page.
func (v *view) StreamURL() string {
	q := maps.Clone(v.Query)
	q.Set("page", v.Page)
	return "stream?" + q.Encode()
}

func (c *Console) newView(r *http.Request, u user, title string) *view {
	v := &view{
		Title: title, User: u.name, MayAct: u.act, Signed: c.opts.Authorize == nil && u.name != "", Theme: themeOf(r), Query: r.URL.Query(),
		TraceURL: c.opts.TraceURL, Self: c.opts.Prefix + strings.TrimPrefix(r.URL.RequestURI(), "/"),
	}
	v.Query.Del("page")
	return v
}

func (c *Console) nav(current string) (all []navEntry) {
	for _, p := range slices.SortedFunc(maps.Values(c.pages), func(a, b *page) int { return a.order - b.order }) {
		if p.key != "" {
			all = append(all, navEntry{p.name, p.title, p.key, p.name == current})
		}
	}
	return all
}

// problem answers a request with an error.
func (c *Console) problem(w http.ResponseWriter, r *http.Request, status int, title, text string) {
	v := c.newView(r, user{}, title)
	v.Problem = text
	part := "page"
	if r.Header.Get("Hx-Request") != "" {
		part = "main"
	}
	c.render(w, status, "problem", part, v)
}
