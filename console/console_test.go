// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/console"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle("/ops/console/", open(t, console.Options{Authorize: anyone, Prefix: "/ops/console/"}))
	b := newBrowser(t, mux)
	for _, path := range []string{"/ops/console/", "/ops/console/shards", "/ops/console/nodes"} {
		text, status := b.page(path)
		if status != http.StatusOK {
			t.Errorf("%s has the status %d", path, status)
		}
		for _, address := range regexp.MustCompile(`(?:href|src|action|sse-connect|hx-[a-z]+)="(/[^"]*)"`).FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(address[1], "/ops/console/") {
				t.Errorf("%s refers to %s, which is not below the prefix", path, address[1])
			}
		}
	}
	c := open(t, console.Options{Authorize: anyone, Prefix: "/ops/console/"})
	if r := newBrowser(t, c).get("/ops/console"); r.header.Get("Location") != "/ops/console/" {
		t.Errorf("the prefix without its slash leads to %q", r.header.Get("Location"))
	}
	if _, status := newBrowser(t, c).page("/other"); status != http.StatusNotFound {
		t.Errorf("a path outside of the prefix has the status %d, want 404", status)
	}
}

// The documentation opens in a tab of its own, and its host does not receive the console's address.
func TestDocumentationLink(t *testing.T) {
	t.Parallel()
	text, _ := newBrowser(t, open(t, console.Options{Authorize: anyone})).page("/")
	link := regexp.MustCompile(`<a href="https://github\.com/refold-io/refold/blob/main/([^"]+)" target="_blank" rel="noreferrer">Documentation</a>`).FindStringSubmatch(text)
	if link == nil {
		t.Fatal("the page has no link to the documentation")
	}
	if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(link[1]))); err != nil {
		t.Errorf("the link leads to no page: %v", err)
	}
}

// Assets have names with a hash and may be kept. Pages refer to them by these names.
func TestAssetsAreImmutable(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, open(t, console.Options{Authorize: anyone}))
	text, _ := b.page("/")
	found := regexp.MustCompile(`/assets/([0-9a-f]{12})-([a-z.-]+)"`).FindAllStringSubmatch(text, -1)
	kinds := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
	seen := map[string]bool{}
	for _, m := range found {
		r := newBrowser(t, b.console).get("/assets/" + m[1] + "-" + m[2]) // without a session
		sum := sha256.Sum256([]byte(r.text))
		if seen[m[2]] = true; r.status != http.StatusOK || hex.EncodeToString(sum[:6]) != m[1] {
			t.Errorf("%s has the status %d and another hash", m[0], r.status)
		}
		if !strings.Contains(r.header.Get("Cache-Control"), "immutable") || !strings.HasPrefix(r.header.Get("Content-Type"), kinds[filepath.Ext(m[2])]) {
			t.Errorf("%s has the headers %v", m[0], r.header)
		}
	}
	for _, want := range []string{"htmx.min.js", "htmx-ext-sse.min.js", "uplot.min.js", "uplot.min.css", "app.js", "app.css", "icon.svg"} {
		if !seen[want] {
			t.Errorf("the page does not refer to %s", want)
		}
	}
	if _, status := b.page("/assets/app.css"); status != http.StatusNotFound {
		t.Errorf("an asset without a hash has the status %d, want 404", status)
	}
}

// assets/THIRD-PARTY.md lists each file of another project with its licence.
func TestThirdPartyFilesAreListed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("assets/THIRD-PARTY.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\S+) \| \x60\S+\x60 \| \d+\.\d+\.\d+ \| (0BSD|MIT) \| (\S+) \| ([0-9a-f]{64}) \|$`).FindAllStringSubmatch(string(page), -1)
	listed := map[string]bool{"THIRD-PARTY.md": true, "licenses": true, "app.js": true, "app.css": true, "icon.svg": true} // the others are our own
	for _, row := range rows {
		content, failed := os.ReadFile(filepath.Join("assets", row[1]))
		if failed != nil {
			t.Error(failed)
			continue
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != row[4] {
			t.Errorf("assets/%s differs from the released file", row[1])
		}
		licence, failed := os.ReadFile(filepath.Join("assets", row[3]))
		if failed != nil || len(licence) < 500 {
			t.Errorf("assets/%s: no licence in %s: %v", row[1], row[3], failed)
		}
		listed[row[1]] = true
	}
	entries, err := os.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !listed[e.Name()] {
			t.Errorf("assets/%s is not listed in assets/THIRD-PARTY.md", e.Name())
		}
	}
}

func TestThemeIsKept(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, open(t, console.Options{Authorize: anyone}))
	if text, _ := b.page("/"); !strings.Contains(text, `data-theme="auto"`) {
		t.Error("the first page does not follow the system")
	}
	if _, status := b.post("/theme", map[string][]string{"theme": {"dark"}, "next": {"/nodes"}}); status != http.StatusSeeOther {
		t.Errorf("the choice has the status %d, want 303", status)
	}
	if text, _ := b.page("/"); !strings.Contains(text, `data-theme="dark"`) {
		t.Error("the page after the choice is not dark")
	}
}

// The headline names the problem in words.
func TestHeadline(t *testing.T) {
	t.Parallel()
	for want, replies := range map[string]map[string]string{
		"All is well: 2 nodes":                                                    {},
		"No node answers":                                                         {"cluster state": `{"error":"it is dark here"}`},
		"2 shards of type account have no home":                                   {"sharding regions": strings.Replace(twoRegions, `"placed":6`, `"placed":8`, 1)},
		"1 shard of type account has no home":                                     {"sharding regions": strings.Replace(twoRegions, `"placed":6`, `"placed":10,"moving":1,"starting":2`, 1)},
		"Type account has no coordinator":                                         {"sharding regions": `{"node":"a#1","regions":[{"type":"account","total":8}]}`},
		"Node b is unreachable to a":                                              {"cluster state": strings.Replace(twoMembers, `"seen":true}]`, `"unreachable":true,"unreachable_to":["a#1"]}]`, 1)},
		"The cluster has no leader":                                               {"cluster state": strings.Replace(twoMembers, `"leader":"a#1",`, "", 1)},
		"Node a is refused for type account":                                      {"sharding regions": strings.Replace(twoRegions, `"shards":3`, `"shards":3,"mismatch":"other shards"`, 1)},
		"Projection statements lags by 31 s":                                      {"projection status": `{"projections":{"projections":[{"name":"statements","state":"running","lag":31000000000,"workers":[{"slices":"0-1023"}]}]}}`},
		"The journal does not work on node b: its circuit breaker is open":        {"runtime status b": `{"runtime":{"hosts":true,"journal_breaker_open":true}}`},
		"The snapshot store does not work on node a: its circuit breaker is open": {"runtime status a": `{"runtime":{"hosts":true,"snapshot_breaker_open":true}}`},
		"Node b is down":                                                          {"cluster state": strings.Replace(twoMembers, `"node":"b#2","status":"up"`, `"node":"b#2","status":"down"`, 1)},
	} {
		admin := newNodes()
		for key, reply := range replies {
			admin.set(key, reply)
		}
		text, _ := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/")
		if headline := regexp.MustCompile(`(?s)id="headline">(.*?)</section>`).FindString(text); !strings.Contains(headline, want) {
			t.Errorf("the headline is %q, want %q", headline, want)
		}
	}
}

func TestReachabilityMatrix(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("cluster state", strings.Replace(twoMembers, `"seen":true}]`, `"unreachable":true,"unreachable_to":["a#1"]}]`, 1))
	text, _ := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/nodes")
	for _, want := range []string{`class="unreachable" data-from="a" data-to="b"`, `class="unknown" data-from="b" data-to="a"`, `class="self" data-from="a" data-to="a"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the matrix has no %s", want)
		}
	}
}

// Each shard has one cell, on the row of its node, with a colour for its number of entities.
func TestHeatMap(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone}))
	text, _ := b.page("/shards?shard=1")
	cells := map[string]string{}
	for _, m := range regexp.MustCompile(`class="cell ([a-z0-9]+)" id="shard-(\d+)" data-shard="\d+" data-node="([ab]?)"`).FindAllStringSubmatch(text, -1) {
		cells[m[2]+m[3]] = m[1]
	}
	for cell, heat := range map[string]string{"0a": "h1", "1a": "h6", "5a": "h0", "2": "off", "7": "off"} {
		if cells[cell] != heat {
			t.Errorf("the cell of shard %s has the colour %q, want %q", cell, cells[cell], heat)
		}
	}
	if !strings.Contains(text, "Shard 1 <span") || !strings.Contains(text, ">42</a>") {
		t.Error("the page does not show the selected shard with its entities")
	}
	if text, _ := b.page("/shards?type=cart"); !strings.Contains(text, "no node has the entity type") {
		t.Error("the page of an unknown type shows no error")
	}
	if text, _ := b.page("/shards?shard=8"); !strings.Contains(text, "has no shard") {
		t.Error("the page of an unknown shard shows no error")
	}
}

// colours returns the classes of the cells of the heat map, by shard and node.
func colours(text string) map[string]string {
	cells := map[string]string{}
	for _, m := range regexp.MustCompile(`class="cell ([a-z0-9 ]+)" id="shard-(\d+)" data-shard="\d+" data-node="([ab]?)"`).FindAllStringSubmatch(text, -1) {
		cells[m[2]+m[3]] = m[1]
	}
	return cells
}

// The query selects the colours: by entities or by load. Links and the stream of the page keep it.
func TestHeatMapByLoad(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone, Interval: time.Hour}))
	if text, _ := b.page("/shards?by=load"); colours(text)["1a"] != "unknown" || !strings.Contains(text, `id="unmeasured"`) {
		t.Errorf("without a measured load, shard 1 has the colour %q, want unknown and a notice", colours(text)["1a"])
	}
	admin.set("sharding shards", `{"shards":[{"shard":0,"entities":1,"per_second":250},{"shard":1,"entities":10,"per_second":0},{"shard":3,"entities":10,"per_second":1.5},{"shard":5,"entities":10}]}`)
	b = newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone}))
	text, _ := b.page("/shards?by=load&type=account")
	for cell, want := range map[string]string{"0a": "h6", "1a": "h0", "3a": "h1", "5a": "unknown", "2": "off"} {
		if got := colours(text)[cell]; got != want {
			t.Errorf("by load, the cell of shard %s has the colour %q, want %q", cell, got, want)
		}
	}
	for _, want := range []string{
		`id="by-load" href="/shards?by=load&amp;type=account" aria-current="true"`, `id="by-entities" href="/shards?type=account">`,
		`href="?by=load&amp;shard=0&amp;type=account#shard"`, `<a href="/shards?by=load&amp;type=account" aria-current="true">account`, `sse-connect="/stream?by=load&amp;page=shards&amp;type=account"`,
		`Shard 0 on a: 1 running entity, 250 commands per second"`, `<b>251</b> commands/s`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page by load has no %s", want)
		}
	}
	if strings.Contains(text, `id="unmeasured"`) {
		t.Error("the page by load has a notice that the load is unknown")
	}
	if text, _ = b.page("/shards"); colours(text)["0a"] != "h1" || colours(text)["1a"] != "h6" || !strings.Contains(text, `id="by-entities" href="/shards?type=account" aria-current="true"`) {
		t.Errorf("without a choice, the shards have the colours %v, want those by entities", colours(text))
	}
	if text, _ = b.page("/shards?by=load&shard=3"); !strings.Contains(text, "<dt>Commands per second</dt><dd>1.5</dd>") {
		t.Error("the selected shard does not show its commands per second")
	}
}

// A shard in motion shows the node that it leaves and the next one.
func TestShardsInMotion(t *testing.T) {
	t.Parallel()
	const moves = `"placed":6,"moving":1,"starting":1,"moves":[{"shard":1,"step":"stopping","from":"a","since":"2026-05-01T09:00:00Z"},{"shard":2,"step":"starting","from":"b<i>","to":"a","since":"2026-05-01T09:00:01Z"}]`
	admin := newNodes()
	admin.set("sharding regions", strings.Replace(twoRegions, `"placed":6`, moves, 1))
	text, _ := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/shards?shard=2")
	cells := colours(text)
	if cells["1a"] != "h6 moving" || cells["2"] != "off moving" || cells["0a"] != "h1" || cells["7"] != "off" {
		t.Errorf("the cells are %v, want 1 and 2 in motion", cells)
	}
	for _, want := range []string{
		"Shard 1 on a: 10 running entities, stopping, a → ?\"", ">1 a → ?</a>", ">2 b&lt;i&gt; → a</a>", "Shard 2 without a node, starting, b&lt;i&gt; → a\"",
		`<dd id="moving">2</dd>`, `<tr><td class="n">2</td><td>b&lt;i&gt; → a</td><td>starting</td>`, "<dt>In motion</dt><dd>b&lt;i&gt; → a, starting</dd>", "2 shards of type account move",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if strings.Contains(text, "no home") {
		t.Error("a shard in motion counts as lost")
	}
	admin.set("sharding regions", strings.NewReplacer(`"placed":6`, moves, `"total":8`, `"total":1000`).Replace(twoRegions))
	text, _ = newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/shards")
	if !strings.Contains(text, "running entities, stopping, a → ?\"") || strings.Contains(text, ">1 a → ?</a>") {
		t.Error("small cells do not show moves as their titles only")
	}
}

// The page of the nodes lists the singletons by name, each with its node.
func TestSingletons(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone, Interval: time.Hour}))
	if text, status := b.page("/nodes"); status != http.StatusOK || strings.Contains(text, `id="singletons"`) {
		t.Errorf("nodes that do not report singletons: status %d, want a page without the list", status)
	}
	admin.set("cluster singletons a", `{"node":"a#1","singletons":[{"name":"rates<b>","state":"younger"},{"name":"coordinator of accounts","role":"teller","state":"oldest","running":true,"since":"2026-05-01T09:00:00Z"}]}`)
	admin.set("cluster singletons b", `{"node":"b#2","singletons":[{"name":"groups<b>","state":"oldest","running":true,"since":"2026-05-01T09:00:00Z"},{"name":"rates<b>","state":"acquiring lease"}]}`)
	admin.set("sharding groups", `{"groups":[{"name":"importers","singleton":"groups<b>"}]}`)
	text, _ := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/nodes")
	var rows []string
	for _, m := range regexp.MustCompile(`(?s)<tr data-singleton=.*?</tr>`).FindAllString(text, -1) {
		row := regexp.MustCompile(`<(/?)[^>]*>`).ReplaceAllStringFunc(m, func(tag string) string {
			if strings.HasPrefix(tag, "</t") {
				return "|"
			}
			return ""
		})
		rows = append(rows, regexp.MustCompile(`\d+ d \d+ h`).ReplaceAllString(row, "days"))
	}
	want := []string{"coordinator of type account|teller|a|days|–||", "coordinator of groups|–|b|days|–||", "rates&lt;b&gt;|–|◐no node|–|b: acquiring lease||"}
	if !slices.Equal(rows, want) {
		t.Errorf("the singletons are %q, want %q", rows, want)
	}
}

// openStream reads a stream until ctx ends or the console closes it.
func openStream(ctx context.Context, c *console.Console, path string, all *sync.WaitGroup) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Host = "localhost"
	all.Go(func() { c.ServeHTTP(w, r) })
	return w
}

// Ten browsers cause the load of one on the nodes, on each page, and no browser causes none.
func TestOnePollerForAllBrowsers(t *testing.T) {
	t.Parallel()
	load := func(page string, browsers int) (while, after, polls int) {
		synctest.Test(t, func(t *testing.T) {
			admin := newNodes()
			admin.set("inspect types", `{"types":{}}`)
			admin.set("inspect tail", `{"tail":{"next":"7"}}`)
			c := open(t, console.Options{Admin: admin, Authorize: anyone})
			ctx, leave := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range browsers {
				openStream(ctx, c, "/stream?page="+page, &all)
			}
			time.Sleep(21 * time.Second)
			while, polls = admin.total(), admin.count("cluster state read")
			leave()
			all.Wait()
			time.Sleep(time.Minute)
			after = admin.total() - while
		})
		return while, after, polls
	}
	for _, page := range []string{"overview", "entities", "entity", "projections", "shards&shard=1", "nodes", "tail", "data", "journal"} {
		one, after, polls := load(page, 1)
		if polls != 11 || one < polls || after > 0 {
			t.Errorf("one browser with the page %s caused %d polls in 21 s, %d requests and %d afterwards, want one poll each 2 s and 0 afterwards", page, polls, one, after)
		}
		if ten, after, _ := load(page, 10); ten != one || after > 0 {
			t.Errorf("ten browsers with the page %s caused %d requests and %d afterwards, want those of one browser, %d and 0", page, ten, after, one)
		}
	}
}

func TestStreamSendsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		admin := newNodes()
		c := open(t, console.Options{Admin: admin, Authorize: anyone})
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		w := openStream(ctx, c, "/stream?page=nodes", &all)
		time.Sleep(time.Minute)
		admin.set("cluster state", strings.Replace(twoMembers, `"node":"b#2","status":"up"`, `"node":"b#2","status":"leaving"`, 1))
		time.Sleep(time.Minute)
		leave()
		all.Wait()
		text := w.Body.String()
		if w.Header().Get("Content-Type") != "text/event-stream" || strings.Count(text, "event: live\n") != 2 {
			t.Errorf("the stream has %d live parts, want one for each state", strings.Count(text, "event: live\n"))
		}
		if !strings.Contains(text, "Node b is leaving") {
			t.Error("the stream does not contain the change")
		}
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "event: ") && !strings.HasPrefix(line, "data: ") && strings.Trim(line, ":\n") != "" {
				t.Errorf("the stream contains the line %q", line)
			}
		}
	})
}

// All streams end when the console is closed, also while a node does not answer, while a tail that
// continues reads old events, and if a browser does not read.
func TestCloseEndsStreams(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		page, blocked string
		stuck         bool
	}{
		"silent node": {page: "shards"},
		"continuing":  {page: "tail", blocked: "inspect tail"},
		"not reading": {page: "nodes", blocked: "no command", stuck: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				admin := newNodes()
				admin.block, admin.blocked = make(chan struct{}), test.blocked
				c := open(t, console.Options{Admin: admin, Authorize: anyone})
				var all sync.WaitGroup
				for range 5 {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/stream?page="+test.page, nil)
					r.Host = "localhost"
					r.Header.Set("Last-Event-ID", "7")
					var w http.ResponseWriter = httptest.NewRecorder()
					if test.stuck {
						w = newStuck()
					}
					all.Go(func() { c.ServeHTTP(w, r) })
				}
				time.Sleep(time.Second)
				began := time.Now()
				c.Close()
				all.Wait()
				if took := time.Since(began); took > time.Second {
					t.Errorf("the streams ended %v after Close, want at most 1 s", took)
				}
				w := openStream(t.Context(), c, "/stream?page=nodes", &all)
				if all.Wait(); w.Code != http.StatusServiceUnavailable {
					t.Errorf("a stream after Close got the status %d, want 503", w.Code)
				}
			})
		})
	}
}

// A browser that does not read causes no load on the nodes.
func TestBrowserThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		admin := newNodes()
		c := open(t, console.Options{Admin: admin, Authorize: anyone})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/stream?page=nodes", nil)
		r.Host = "localhost"
		var all sync.WaitGroup
		all.Go(func() { c.ServeHTTP(newStuck(), r) })
		time.Sleep(time.Minute)
		asked := admin.total()
		time.Sleep(time.Minute)
		if more := admin.total() - asked; asked == 0 || more > 0 {
			t.Errorf("%d requests in the first minute, %d in the second, want some and none", asked, more)
		}
		c.Close()
		all.Wait()
	})
}

// stuck is the response to a browser that does not read: each write lasts until its deadline.
type stuck struct {
	*httptest.ResponseRecorder

	deadline *time.Timer
}

func newStuck() *stuck { return &stuck{httptest.NewRecorder(), time.NewTimer(24 * time.Hour)} }

func (s *stuck) SetWriteDeadline(t time.Time) error {
	s.deadline.Reset(time.Until(t))
	return nil
}

func (s *stuck) Write([]byte) (int, error) {
	<-s.deadline.C
	return 0, os.ErrDeadlineExceeded
}

// A stream ends with the session.
func TestStreamEndsWithSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, console.Options{})
		b := newBrowser(t, c)
		b.get(tokenOf(t, c))
		var all sync.WaitGroup
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/stream?page=nodes", nil)
		r.Host = "localhost"
		r.AddCookie(b.cookies[0])
		all.Go(func() { c.ServeHTTP(w, r) })
		time.Sleep(time.Minute)
		if w.Code != http.StatusOK {
			t.Fatalf("the stream has the status %d", w.Code)
		}
		b.post("/logout", nil)
		all.Wait()
	})
}
