// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/internal/replication"
	"github.com/refold-io/refold/journal"
)

// rows returns the rows of the first table after a mark: the texts of the cells by the heading of
// their column.
func rows(t *testing.T, page, mark string) (all []map[string]string) {
	t.Helper()
	table := between(page, mark, "</table>")
	var columns []string
	for _, m := range regexp.MustCompile(`<th scope="col"[^>]*>([^<]*)`).FindAllStringSubmatch(table, -1) {
		columns = append(columns, m[1])
	}
	for row := range strings.SplitSeq(between(table, "<tbody>", "</tbody>"), "</tr>") {
		cells := regexp.MustCompile(`(?s)<t[hd][ >].*?</t[hd]>`).FindAllString(row, -1)
		if len(cells) == 0 {
			continue
		}
		if len(cells) > len(columns) {
			t.Fatalf("%s: a row has %d cells in %d columns: %s", mark, len(cells), len(columns), row)
		}
		byColumn := map[string]string{}
		for i, cell := range cells {
			byColumn[columns[i]] = text(cell)
		}
		all = append(all, byColumn)
	}
	return all
}

// facts returns the terms of the description lists in a part of a page.
func facts(part string) map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?s)<dt>([^<]*)</dt><dd[^>]*>(.*?)</dd>`).FindAllStringSubmatch(part, -1) {
		all[m[1]] = text(m[2])
	}
	return all
}

// tiles returns the tiles of the overview by their label: the class, if any, and the figure.
func tiles(page string) map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?s)<li(?: class="(\w+)")?><a href="[^"]*"><b>(.*?)</b>([^<]*)</a></li>`).FindAllStringSubmatch(page, -1) {
		all[m[3]] = strings.TrimSpace(m[1] + " " + text(m[2]))
	}
	return all
}

// shows compares the texts that are wanted.
func shows(t *testing.T, name string, got, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if shown, ok := got[key]; !ok || shown != value {
			t.Errorf("%s: %s is %q, want %q", name, key, shown, value)
		}
	}
}

// showsRows compares the rows of a table.
func showsRows(t *testing.T, name string, got, want []map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: the table has the rows %v, want %v", name, got, want)
	}
	for i := range want {
		shows(t, name, got[i], want[i])
	}
}

// without returns a form without a field.
func without(form url.Values, field string) url.Values {
	form = maps.Clone(form)
	form.Del(field)
	return form
}

// Each action names its target and asks first. It sends its request to the right node, and is logged
// with the user and the target, whether it fails or not.
func TestEachAction(t *testing.T) {
	t.Parallel()
	const account, statements = `{"service":"sharding","command":"`, `"name":"statements"}`
	tests := map[string]struct {
		target   url.Values
		optional bool // the target can be left out
		question string
		key      string   // of the reply
		reply    string   // {} if empty
		sent     []string // the name of the node and the request
		done     string
	}{
		"cluster.leave": {
			target: url.Values{"node": {"b#2"}}, question: "Let node b#2 leave the cluster?", key: "cluster leave",
			sent: []string{` {"command":"leave","node":"b#2"}`}, done: "Node b leaves the cluster.",
		},
		"cluster.down": {
			target: url.Values{"node": {"b#2"}}, question: "Mark node b#2 as dead?", key: "cluster down",
			sent: []string{` {"command":"down","node":"b#2"}`}, done: "Node b is down.",
		},
		"sharding.rebalance": {
			target: url.Values{"type": {"account"}}, question: "Rebalance the shards of type account now?", key: "sharding rebalance",
			reply: `{"node":"b#2","moving":2}`, sent: []string{"b " + account + `rebalance","type":"account"}`}, done: "2 shards of type account move.",
		},
		"sharding.drain": {
			target: url.Values{"node": {"a"}, "type": {"account"}}, question: "Drain node a for type account?", key: "sharding drain",
			sent: []string{"a " + account + `drain","type":"account"}`}, done: "Node a hands off its shards of type account.",
		},
		"sharding.undrain": {
			target: url.Values{"node": {"a"}, "type": {"account"}}, question: "Let node a host shards of type account again?", key: "sharding undrain",
			sent: []string{"a " + account + `undrain","type":"account"}`}, done: "Node a may host shards of type account.",
		},
		"sharding.move": {
			target: url.Values{"type": {"account"}, "shard": {"5"}, "to": {"a"}}, question: "Move shard 5 of type account to node a?", key: "sharding move",
			sent: []string{"b " + account + `move","type":"account","shard":5,"to":"a"}`}, done: "Shard 5 of type account moves to node a.",
		},
		"sharding.release": {
			target: url.Values{"type": {"account"}, "shard": {"5"}}, question: "Release shard 5 of type account?", key: "sharding release",
			sent: []string{"b " + account + `release","type":"account","shard":5}`}, done: "The strategy may move shard 5 of type account.",
		},
		"projection.pause": {
			target: url.Values{"projection": {"statements"}}, question: "Pause projection statements on all nodes?", key: "projection pause", reply: `{"projections":{}}`,
			sent: []string{`a {"service":"projection","command":"pause",` + statements, `b {"service":"projection","command":"pause",` + statements}, done: "Projection statements is paused.",
		},
		"projection.resume": {
			target: url.Values{"projection": {"statements"}}, question: "Resume projection statements on all nodes?", key: "projection resume", reply: `{"projections":{}}`,
			sent: []string{`a {"service":"projection","command":"resume",` + statements, `b {"service":"projection","command":"resume",` + statements}, done: "Projection statements continues.",
		},
		"projection.rebuild": {
			target: url.Values{"projection": {"statements"}}, question: "Rebuild projection statements?", key: "projection rebuild", reply: `{"projections":{}}`,
			sent: []string{`b {"service":"projection","command":"rebuild",` + statements}, done: "Projection statements is rebuilt.",
		},
		"journal.verify": {
			target: url.Values{"node": {"b"}}, optional: true, question: "Verify the journal and the snapshots now?", key: "inspect verify-start", reply: `{"verify":{"running":true}}`,
			sent: []string{`b {"service":"inspect","command":"verify-start"}`}, done: "The verification has started.",
		},
		"journal.stop": {
			target: url.Values{"node": {"b"}}, optional: true, question: "Stop the verification?", key: "inspect verify-stop", reply: `{"verify":{}}`,
			sent: []string{`b {"service":"inspect","command":"verify-stop"}`}, done: "The verification has stopped.",
		},
	}
	if tested := slices.Sorted(maps.Keys(tests)); !slices.Equal(tested, console.Actions()) {
		t.Errorf("the test has the actions %q, the console %q", tested, console.Actions())
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin := newNodes()
			admin.set("sharding regions a", `{"node":"a#1","regions":[{"type":"account","total":8,"shards":6}]}`)
			admin.set("sharding regions b", `{"node":"b#2","regions":[{"type":"account","total":8,"coordinator_state":{"term":7,"phase":"active","placed":6}}]}`)
			admin.set("projection status a", `{"projections":{"projections":[{"name":"other","rebuilds":true},{"name":"statements"}]}}`)
			admin.set("projection status b", `{"projections":{"projections":[{"name":"statements","rebuilds":true}]}}`)
			if admin.set(test.key, "{}"); test.reply != "" {
				admin.set(test.key, test.reply)
			}
			var lines log
			b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone, AllowActions: true, Logger: lines.logger()}))
			form := url.Values{"action": {name}}
			maps.Copy(form, test.target)
			page, status := b.page("/confirm?" + form.Encode())
			dialog := between(page, `data-action="`+name+`"`, "</section>")
			if question := text(between(dialog, "<h1>", "</h1>")); status != http.StatusOK || question != test.question {
				t.Errorf("the confirmation has the status %d and asks %q, want %q", status, question, test.question)
			}
			want := map[string]string{"user": "ann"}
			logged := []string{"user=ann", "action=" + name, "remote=127.0.0.1:50000"}
			contains(t, "confirmation", dialog, `<input type="hidden" name="action" value="`+name+`">`)
			for field, value := range test.target {
				want[field] = value[0]
				logged = append(logged, "target_"+field+"="+value[0])
				contains(t, "confirmation", dialog, `<input type="hidden" name="`+field+`" value="`+value[0]+`">`)
			}
			shows(t, "confirmation", facts(dialog), want)
			for field := range test.target {
				if test.optional {
					break
				}
				part := without(form, field)
				_, asked := b.page("/confirm?" + part.Encode())
				if _, acted := b.post("/act", part); asked != http.StatusBadRequest || acted != http.StatusBadRequest {
					t.Errorf("without %s the confirmation has the status %d, the action %d, want 400", field, asked, acted)
				}
			}
			if sent := admin.acted(); len(sent) > 0 || strings.Contains(lines.String(), "console: action") {
				t.Errorf("before the confirmation, the nodes received %q", sent)
			}
			page, status = b.post("/act", form)
			if sent := admin.acted(); status != http.StatusOK || !slices.Equal(sent, test.sent) {
				t.Errorf("the action has the status %d and sent %q, want %q", status, sent, test.sent)
			}
			if done := text(between(page, "<h1>", "</h1>")); done != "✓ "+test.done {
				t.Errorf("the result is %q, want %q", done, test.done)
			}
			before := lines.String()
			if strings.Count(before, "\n") != 1 {
				t.Errorf("the log has more than one line: %s", before)
			}
			contains(t, "log", before, append(logged, "level=INFO", `msg="console: action"`)...)
			admin.set(test.key, `{"error":"not today"}`)
			if page, status = b.post("/act", form); status != http.StatusBadGateway || !strings.Contains(text(between(page, `role="alert"`, "</p>")), "not today") {
				t.Errorf("the action that the node refuses has the status %d: %s", status, text(page))
			}
			contains(t, "log of a failure", strings.TrimPrefix(lines.String(), before), append(logged, "level=WARN", `msg="console: action failed"`, "not today")...)
		})
	}
}

// The tiles sum up all nodes, types and projections. A class marks the figures that need attention.
func TestOverviewTiles(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("cluster state", strings.Replace(twoMembers, `"seen":true}]`, `"seen":true},{"node":"c#3","status":"joining","version":"1.0.0"}]`, 1))
	admin.set("sharding regions a", `{"node":"a#1","regions":[{"type":"account","total":8,"shards":3,"entities":1200,"waiting":2,"dropped":1001,"coordinator_state":{"term":7,"phase":"active","placed":6,"moving":1}},
		{"type":"cart","total":4,"shards":1,"entities":2,"coordinator_state":{"term":1,"phase":"active","placed":1,"moves":[{"shard":1,"step":"stopping","from":"a"},{"shard":2,"step":"starting","from":"a"}]}}]}`)
	admin.set("sharding regions b", `{"node":"b#2","regions":[{"type":"account","total":8,"shards":2,"entities":5,"waiting":1,"dropped":2}]}`)
	admin.set("runtime status a", `{"runtime":{"hosts":true,"entities":[{"type":"account","resident":9,"inbox":3,"stash":4}],"load":{"per_second":120.5,"p99":4000000,"dropped":6}}}`)
	admin.set("runtime status b", `{"runtime":{"hosts":true,"journal_breaker_open":true,"snapshot_breaker_open":true,"load":{"per_second":30.5,"p99":12500000}}}`)
	admin.set("projection status a", `{"projections":{"projections":[{"name":"statements","state":"running","lag":2000000000,"workers":[{"slices":"0-511"}]}]}}`)
	admin.set("projection status b", `{"projections":{"projections":[{"name":"statements","state":"running","lag":65000000000,"workers":[{"slices":"512-1023"}]}]}}`)
	page, _ := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/")
	want := map[string]string{
		"nodes up": "warn 2 /3", "shards placed": "6 /12", "moving": "warn 3", "entities in memory": "1,207", "commands per second": "151", "p99 of commands": "12.5 ms",
		"commands waiting": "10", "dropped since start": "warn 1,009", "worst projection lag": "warn 1 min 5 s", "breakers open": "bad 2",
	}
	got := tiles(page)
	shows(t, "overview", got, want)
	if len(got) != len(want) {
		t.Errorf("the tiles are %v, want %v", got, want)
	}
	admin = newNodes() // nothing needs attention, and no agent measures
	admin.set("projection status", `{"projections":{"projections":[{"name":"statements","state":"running","lag":30000000000,"workers":[{"slices":"0-1023"}]}]}}`)
	page, _ = newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/")
	got = tiles(page)
	shows(t, "quiet overview", got, map[string]string{
		"nodes up": "2 /2", "shards placed": "6 /8", "moving": "0", "commands waiting": "0", "dropped since start": "0", "worst projection lag": "30 s", "breakers open": "0",
	})
	if _, ok := got["p99 of commands"]; ok {
		t.Errorf("the tiles are %v, want no load", got)
	}
}

// The page of the nodes shows status, age, roles and versions of each member, and the strategy.
func TestNodesPage(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("cluster state", `{"state":{"cluster":"bank","self":"a#1","leader":"a#1","role_leaders":{"teller":"a#1","vault":"b#2"},"strategy":"keep-majority","converged":false,"members":[
		{"node":"a#1","status":"up","roles":["teller"],"version":"1.0.0","up_number":7},{"node":"b#2","status":"leaving","roles":["teller","vault"],"version":"1.1.0","up_number":3},
		{"node":"c#3","status":"joining","version":"1.2.0"}]}}`)
	admin.set("runtime status a", `{"runtime":{"hosts":true,"go":"go1.99","goroutines":1234,"heap":2097152,"uptime":93784000000000,"load":{"per_second":120,"p99":1500000}}}`)
	page, _ := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/nodes")
	showsRows(t, "nodes", rows(t, page, `id="nodes"`), []map[string]string{
		{
			"Node": "a leader", "Status": "● up", "Age": "#2", "Roles": "teller leads teller", "Version": "1.0.0", "Shards": "3", "Entities": "12",
			"Commands/s": "120", "p99": "1.5 ms", "Heap": "2 MiB", "Goroutines": "1,234", "Up for": "1 d 2 h",
		},
		{"Node": "b", "Status": "◐ leaving", "Age": "oldest", "Roles": "teller vault leads vault", "Version": "1.1.0", "Commands/s": "–", "Up for": "–"},
		{"Node": "c", "Status": "◐ joining", "Age": "–", "Roles": "–", "Version": "1.2.0", "Shards": "0"},
	})
	shows(t, "cluster", facts(page), map[string]string{"Cluster": "bank", "Leader": "a", "Downing strategy": "keep-majority", "Same state": "◐ not yet", "As seen by": "a"})
}

// Without a cluster, the page of the nodes describes the process.
func TestProcessPage(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("cluster state", `{"error":"no cluster"}`)
	admin.set("runtime status", `{"runtime":{"started":"2026-01-31T15:04:05Z","uptime":93784000000000,"version":"v7.1.0","refold":"v0.9.0","go":"go1.99","goroutines":21,"heap":1048576,"memory":4194304,"cpus":2,
		"load":{"per_second":4.25,"p50":500000,"p99":1500000,"failed":3}}}`)
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone}))
	for _, path := range []string{"/", "/nodes"} {
		page, _ := b.page(path)
		shows(t, path, facts(page), map[string]string{
			"Up for": "1 d 2 h, since 2026-01-31 15:04:05", "Version": "v7.1.0 , Refold v0.9.0 , go1.99", "Heap": "1 MiB of 4 MiB", "Goroutines": "21 on 2 processors",
			"Commands": "4.2 per second, p50 0.5 ms, p99 1.5 ms, 3 failed",
		})
	}
}

// The page of the shards shows the coordinator with the highest term, or that there is none.
func TestCoordinator(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("sharding regions b", `{"node":"b#2","regions":[{"type":"account","role":"teller","total":8,"shards":2,"entities":5,"waiting":4,"coordinator_state":{"term":1009,"phase":"Recovering","placed":5,"moving":1}}]}`)
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone, Interval: 100 * time.Millisecond}))
	page, _ := b.page("/shards")
	shows(t, "shards", facts(page), map[string]string{"Term": "1,009", "Phase": "recovering", "Placed": "5/8", "Moving": "1", "Entities": "17", "Waiting": "4"})
	if coordinator := between(page, `<dd id="coordinator">`, "</dd>"); coordinator != "b" {
		t.Errorf("the coordinator is %q, want that with the highest term, b", coordinator)
	}
	admin.set("sharding regions", `{"regions":[{"type":"account","total":8,"shards":3}]}`)
	admin.set("sharding regions b", `{"regions":[]}`)
	page, _ = newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone})).page("/shards")
	if coordinator := text(between(page, `<dd id="coordinator">`, "</dd>")); coordinator != "✕ none" || facts(page)["Term"] != "" {
		t.Errorf("without a coordinator, the page shows %q and the term %q", coordinator, facts(page)["Term"])
	}
}

// The page of the projections shows the workers by slices, with their nodes, and the trend of the lag.
func TestProjectionWorkers(t *testing.T) {
	t.Parallel()
	const (
		onA = `{"projections":{"projections":[{"name":"statements","state":"running","lag":2000000000,"handled":1200,"workers":[
			{"slices":"0-511","state":"running","handled":1200,"skipped":3,"lag":2000000000,"last_event":"2026-01-31T15:04:05Z"}]}]}}`
		onB = `{"projections":{"projections":[{"name":"statements","state":"running","lag":1000000000,"lag_unknown_since":"2026-01-31T15:04:05Z","handled":7,"workers":[
			{"slices":"512-767","state":"running","handled":7,"lag":1000000000,"caught_up":true},
			{"slices":"768-1023","state":"waiting","lag_unknown_since":"2026-01-31T15:04:05Z","next_try":"2026-01-31T16:00:00Z","failure":{"text":"out of paper"}}]}]}}`
	)
	synctest.Test(t, func(t *testing.T) {
		admin := newNodes()
		admin.set("projection status a", onA)
		admin.set("projection status b", onB)
		b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone}))
		page, _ := b.page("/projections")
		showsRows(t, "workers", rows(t, page, `aria-label="Workers of statements"`), []map[string]string{
			{"Slices": "0-511", "Node": "a", "State": "running", "Lag": "2 s", "Last event": "2026-01-31 15:04:05", "Handled": "1,200", "Skipped": "3", "Problem": ""},
			{"Slices": "512-767", "Node": "b", "State": "running caught up", "Lag": "1 s", "Last event": "–", "Handled": "7", "Skipped": "0", "Problem": ""},
			{"Slices": "768-1023", "Node": "b", "State": "waiting", "Lag": "unknown", "Handled": "0", "Problem": "✕ out of paper next try 16:00:00"},
		})
		shows(t, "statements", facts(between(page, `data-projection="statements"`, "</section>")), map[string]string{"Lag": "unknown", "Handled": "1,207"})
		time.Sleep(3 * time.Second)
		admin.set("projection status a", strings.ReplaceAll(onA, `"lag":2000000000`, `"lag":65000000000`))
		page, _ = b.page("/projections")
		var trend [2][]int64 // the times and the lags in seconds
		chart := regexp.MustCompile(`<figure class="chart" data-points="([^"]*)"><figcaption>Lag of statements, seconds <b>65</b>`).FindStringSubmatch(page)
		if chart == nil {
			t.Fatalf("the page has no trend of the lag: %s", between(page, `data-projection="statements"`, "</section>"))
		}
		if err := json.Unmarshal([]byte(html.UnescapeString(chart[1])), &trend); err != nil {
			t.Fatal(err)
		}
		if times := trend[0]; len(times) != 2 || times[1]-times[0] != 3 || !slices.Equal(trend[1], []int64{2, 65}) {
			t.Errorf("the trend is %v, want 2 and 65 with 3 s between them", trend)
		}
	})
}

// The page of replicated data shows the keys, a value as JSON, the digest of each node and the keys
// that differ.
func TestReplicatedData(t *testing.T) {
	t.Parallel()
	sums := func(node string, first byte) string {
		buckets := make([]byte, replication.BucketCount*len(replication.Digest{}))
		buckets[0] = first
		reply, err := json.Marshal(map[string]any{"node": node, "sums": map[string]any{"digest": "", "buckets": buckets}})
		if err != nil {
			t.Fatal(err)
		}
		return string(reply)
	}
	const value = `{"limits":{"usd":[1,2]},"open":true}`
	part, err := json.Marshal(map[string]any{"node": "a#1", "part": map[string]any{"type": "map", "digest": "d", "size": len(value), "data": []byte(value)}})
	if err != nil {
		t.Fatal(err)
	}
	admin := newNodes()
	admin.set("ddata stats a", `{"node":"a#1","stats":[{"replicator":"default","replicas":2,"keys":1200,"deleted":1,"synced":true,"digest":"aaaaaaaaaaaaaaaa"},{"replicator":"prices","synced":true,"digest":"cccccccccccccccc"}]}`)
	admin.set("ddata stats b", `{"node":"b#2","stats":[{"replicator":"default","replicas":2,"keys":3,"digest":"bbbbbbbbbbbbbbbb","disk_errors":4},{"replicator":"prices","synced":true,"digest":"cccccccccccccccc"}]}`)
	admin.set("ddata keys a", `{"node":"a#1","keys":[{"key":"gone","deleted":true},{"key":"rates","type":"map","durable":true},{"key":"seen<b>","type":"set"}]}`)
	admin.set("ddata get a", string(part))
	admin.set("ddata digests a", sums("a#1", 0))
	admin.set("ddata digests b", sums("b#2", 1))
	admin.set("ddata bucket a", `{"node":"a#1","marks":[{"key":"gone"},{"key":"rates","digest":"11111111111111111111"},{"key":"same","digest":"5555"}]}`)
	admin.set("ddata bucket b", `{"node":"b#2","marks":[{"key":"rates","digest":"22222222222222222222"},{"key":"same","digest":"5555"}]}`)
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone}))
	page, status := b.page("/data?key=rates")
	if status != http.StatusOK || strings.Contains(page, `role="alert"`) {
		t.Fatalf("the page has the status %d: %s", status, text(page))
	}
	showsRows(t, "replicators", rows(t, page, `id="replicators"`), []map[string]string{
		{"Replicator": "default", "Node": "a", "Keys": "1,200", "Deleted": "1", "Replicas": "2", "Synced": "● yes", "Digest": "aaaaaaaaaaaa = same", "Disk errors": "0"},
		{"Replicator": "default", "Node": "b", "Keys": "3", "Synced": "◐ not yet", "Digest": "bbbbbbbbbbbb ≠ differs", "Disk errors": "4"},
		{"Replicator": "prices", "Node": "a", "Digest": "cccccccccccc = same"},
		{"Replicator": "prices", "Node": "b", "Digest": "cccccccccccc = same"},
	})
	showsRows(t, "difference", rows(t, page, `id="diff"`), []map[string]string{
		{"Key": "gone", "a": "deleted", "b": "–"}, {"Key": "rates", "a": "111111111111", "b": "222222222222"},
	})
	showsRows(t, "keys", rows(t, page, `id="keys-table"`), []map[string]string{
		{"Key": "gone", "Type": "deleted", "Stored": "in memory"}, {"Key": "rates", "Type": "map", "Stored": "on disk"}, {"Key": "seen&lt;b&gt;", "Type": "set", "Stored": "in memory"},
	})
	contains(t, "keys", page, `href="/data?key=rates&amp;replicator=default"`)
	shown := between(page, `id="value"`, "</section>")
	contains(t, "value", text(shown), "map · 36 B of JSON · as held by a", `limits {&#34;usd&#34;:[1,2]} usd [1,2] 0 1 1 2`, "open true")
	unfolds(t, page)
	admin.set("ddata digests a", sums("a#1", 1))
	page, _ = b.page("/data?replicator=prices")
	if got := text(between(page, `id="same"`, "</p>")); !strings.Contains(got, "All nodes hold the same data of prices.") || strings.Contains(page, `id="diff"`) {
		t.Errorf("the comparison of equal data is %q", got)
	}
}

// folded returns a part of a page without the folded elements.
func folded(part string) string {
	var out strings.Builder
	var closed []bool // the elements around the text
	tags := regexp.MustCompile(`</?details[^>]*>`)
	for part != "" {
		at := tags.FindStringIndex(part)
		if at == nil {
			at = []int{len(part), len(part)}
		}
		if !slices.Contains(closed, true) {
			out.WriteString(part[:at[0]])
		}
		switch tag := part[at[0]:at[1]]; {
		case strings.HasPrefix(tag, "<details"):
			closed = append(closed, !strings.Contains(tag, " open"))
		case tag != "":
			closed = closed[:max(0, len(closed)-1)]
		}
		part = part[at[1]:]
	}
	return out.String()
}

// unfolds checks that a page has a button that unfolds all of it.
func unfolds(t *testing.T, page string) {
	t.Helper()
	if n := strings.Count(page, ` data-unfold aria-pressed="false">Unfold all</button>`); n != 1 {
		t.Errorf("the page has %d buttons that unfold it, want 1", n)
	}
}

// JSON shows its first level. Below it, objects and lists are folded, and a button unfolds all.
func TestJSONIsFolded(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.deposit("7", 10)
	page, _ := b.browse().page("/entities/account%7C7")
	field := func(name string) string { return `<span class="j-f">` + name + `</span>` }
	state := between(page, `<div id="state">`, "</section>")
	contains(t, "state", state, field("Balance"), field("Last"), field("Where"), field("branch"), `<details class="j"><summary>`)
	first := folded(state)
	contains(t, "first level", first, field("Balance"), field("Secret"), field("Last"))
	for _, below := range []string{"Amount", "Where", "branch"} {
		if strings.Contains(first, field(below)) {
			t.Errorf("the field %s below the first level is not folded: %s", below, state)
		}
	}
	if n := strings.Count(state, `<details class="j">`); n != 2 {
		t.Errorf("the state has %d folded elements, want Last and its Where", n)
	}
	unfolds(t, page)
	if history := folded(between(page, `id="history-rows"`, "</ol>")); strings.Contains(history, field("Amount")) {
		t.Errorf("the payloads of the history are not folded: %s", history)
	}
}

// The page of an entity shows its snapshots and its pending deliveries, which the node that hosts the
// entity lists.
func TestSnapshotsAndDeliveries(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("inspect events", `{"events":{"events":[{"nr":3,"time":"2026-01-31T15:04:05Z","manifest":"paid","size":3,"json":{}}],"first":1,"highest":3}}`)
	admin.set("inspect ids", `{"ids":{"ids":[{"id":"account|7","type":"account","entity_id":"7","highest":3}]}}`)
	admin.set("inspect state", `{"state":{"nr":3,"size":3,"json":{}}}`)
	admin.set("inspect difference", `{"difference":{"before":{"nr":2},"after":{"nr":3},"equal":true}}`)
	admin.set("sharding find", `{"node":"a#1","found":{"shard":1,"home":"b#2","running":true}}`)
	admin.set("inspect snapshots", `{"snapshots":{"snapshots":[{"nr":3,"time":"2026-01-31T15:04:05Z"},{"nr":1,"time":"2026-01-30T00:00:00Z"}],"more":true}}`)
	admin.set("inspect pending b", `{"pending":{"live":true,"total":1002,"deliveries":[{"part":"Payments","nr":5,"type":"shop","id":"x<b>","command":"bank.payment","attempts":3,"failure":"the shop is closed","size":9,"json":{"Amount":41}},
		{"part":"Payments","nr":6,"type":"shop","id":"y","command":"bank.payment","size":9,"json":{"Amount":42}}]}}`)
	b := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone}))
	section := func(page, name string) string { return between(page, `aria-labelledby="`+name+`-title"`, "</section>") }
	items := func(part string) (all []string) {
		for _, m := range regexp.MustCompile(`(?s)<ul class="plain-list">(.*)</ul>`).FindAllStringSubmatch(part, -1) {
			for _, item := range regexp.MustCompile(`(?s)<li>(?:after|<code>).*?</li>`).FindAllString(m[1], -1) {
				all = append(all, text(item))
			}
		}
		return all
	}
	page, status := b.page("/entities/account%7C7")
	if status != http.StatusOK {
		t.Fatalf("the page has the status %d: %s", status, text(page))
	}
	snapshots := section(page, "snapshots")
	if got := items(snapshots); !slices.Equal(got, []string{"after event 3 2026-01-31 15:04:05", "after event 1 2026-01-30 00:00:00"}) {
		t.Errorf("the snapshots are %q", got)
	}
	contains(t, "snapshots", snapshots, `<a href="/entities/account%7C7?at=1" data-at="1">`, `<span class="count">2+</span>`)
	deliveries := section(page, "pending")
	contains(t, "deliveries", deliveries, `<span class="count">1,002</span>`)
	if n := strings.Count(deliveries, "<code>bank.payment</code>"); n != 2 {
		t.Errorf("the page shows %d deliveries, want 2: %s", n, text(deliveries))
	}
	contains(t, "deliveries", text(deliveries),
		"bank.payment to shop x&lt;b&gt; no. 5 of Payments, 3 attempts the shop is closed Amount 41", "bank.payment to shop y no. 6 of Payments Amount 42")
	admin.set("inspect snapshots", `{"error":"the disk is gone"}`)
	admin.set("inspect pending b", `{"error":"the part is broken"}`)
	page, _ = b.page("/entities/account%7C7")
	contains(t, "snapshots", text(section(page, "snapshots")), "the disk is gone")
	contains(t, "deliveries", text(section(page, "pending")), "the part is broken")
	admin.set("inspect snapshots", `{"snapshots":{}}`)
	admin.set("inspect pending b", `{"pending":{"total":0}}`)
	page, _ = b.page("/entities/account%7C7")
	contains(t, "snapshots", text(section(page, "snapshots")), "None.")
	contains(t, "deliveries", text(section(page, "pending")), "Pending deliveries 0 None.")
}

// An event links to its trace, if it has one and the console knows the tracing system.
func TestTraceLinks(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	ids, err := hex.DecodeString("01" + trace + "00f067aa0ba902b7")
	if err != nil {
		t.Fatal(err)
	}
	b := newBank(t)
	manifest, payload, err := accountType().Events.Encode(deposited{Amount: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(b.journal.Append(t.Context(), []journal.Write{{ID: "account|8", Writer: "w", Events: []journal.Event{
		{SequenceNr: 1, Manifest: manifest, Payload: payload}, {SequenceNr: 2, Manifest: manifest, Payload: payload, Metadata: ids},
	}}})...); err != nil {
		t.Fatal(err)
	}
	row := func(web *browser, nr string) string {
		page, _ := web.page("/entities/account%7C8")
		return between(page, `<li value="`+nr+`"`, "</p></div></details></li>")
	}
	with := b.browse(func(_ *console.AgentConfig, opts *console.Options) {
		opts.TraceURL = "https://traces.example/t/{trace}?from=1&to=2"
	})
	contains(t, "event 2", row(with, "2"), `<a href="https://traces.example/t/`+trace+`?from=1&amp;to=2" rel="noreferrer" target="_blank"><code>`+trace+`</code></a>`)
	if got := row(with, "1"); strings.Contains(got, "traces.example") || !strings.Contains(got, "written by") {
		t.Errorf("an event without a trace has the row %s", got)
	}
	plain := row(b.browse(), "2")
	if !strings.Contains(plain, "trace <code>"+trace+"</code> ·") {
		t.Errorf("without a tracing system, the event has the row %s, want the ID of its trace as text", plain)
	}
}

// The page of the journal shows the progress of a verification, and its result.
func TestVerificationProgress(t *testing.T) {
	t.Parallel()
	admin := newNodes()
	admin.set("inspect types", `{"types":{"journal":true}}`)
	counts := `"started":"2026-01-31T15:04:05Z","ids":2,"records":1200,"snapshots":3,"by_type":{"account":{"ids":1,"records":1100},"cart":{"ids":1,"records":100}}`
	show := func(state string) (card string) {
		admin.set("inspect verify", `{"verify":{`+state+`}}`)
		page, _ := newBrowser(t, open(t, console.Options{Admin: admin, Authorize: anyone, AllowActions: true})).page("/journal")
		return between(page, `<section class="card" id="verify"`, "</section>")
	}
	card := show(counts + `,"running":true`)
	contains(t, "running", card, `data-running="true"`, "<progress ", `id="verify-stop" href="/confirm?action=journal.stop&amp;node=a"`, `<span class="tag warn">runs</span>`)
	want := map[string]string{"Started": "2026-01-31 15:04:05", "IDs": "2", "Records": "1,200", "Snapshots": "3", "Node": "a"}
	shows(t, "running", facts(card), want)
	showsRows(t, "running", rows(t, card, "<h3>By type</h3>"), []map[string]string{{"Type": "account", "IDs": "1", "Records": "1,100"}, {"Type": "cart", "IDs": "1", "Records": "100"}})
	card = show(counts + `,"ended":"2026-01-31T15:05:00Z"`)
	if strings.Contains(card, "<progress ") || strings.Contains(card, "verify-stop") {
		t.Errorf("a verification that has ended is shown as running: %s", text(card))
	}
	contains(t, "ended", card, `data-running="false"`, `id="verify-start" href="/confirm?action=journal.verify&amp;node=a"`, `<span class="tag ok">no problem found</span>`)
	want["Ended"] = "2026-01-31 15:05:00"
	shows(t, "ended", facts(card), want)
	card = show(counts + `,"problems":[{"id":"account|7","nr":5,"text":"cannot be decoded"}],"omitted":1001`)
	contains(t, "problems", card, `<span class="tag bad">found problems</span>`, `<a class="mono" href="/entities/account%7C7?at=5">account|7 no. 5</a> cannot be decoded`, "1,001 further problems")
	contains(t, "failure", text(show(counts+`,"failure":"it was stopped"`)), "ended early", "it was stopped")
}

// TestMillis checks that a long latency has all its digits and a short one has three.
func TestMillis(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", 1500 * time.Nanosecond: "0.001", 12345 * time.Microsecond: "12.3",
		123456 * time.Microsecond: "123", 1340 * time.Millisecond: "1,340",
	} {
		if got := console.MillisText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
