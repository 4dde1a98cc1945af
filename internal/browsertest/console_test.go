// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package browsertest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/console"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"
)

// set moves a slider like a user.
func set(id string, value int) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{const e = document.getElementById(%q); e.value = "%d"; e.dispatchEvent(new Event("input", {bubbles: true}));}`, id, value))
}

// settled is true when htmx has prepared all elements that it has swapped.
const settled = `!document.querySelector(".htmx-swapping, .htmx-settling")`

// unserved are the pages that the bank's console cannot fill: they need a console.Agent in each
// branch, which the bank does not start.
var unserved = []string{"entities", "tail", "journal"}

// console opens each page of the console of a cluster, and drains a node.
func (b *browser) console(url string) {
	b.tb.Helper()
	for _, name := range []string{"", "entities", "projections", "nodes", "tail", "data", "journal"} {
		b.open(url + name)
		b.wait(`document.querySelector("h1")`)
		if missing := eval[bool](b, `document.querySelector("main .notice.bad") !== null`); missing != slices.Contains(unserved, name) {
			b.tb.Errorf("page %q of the console reports a problem: %v, want %v", name, missing, !missing)
		}
		title := name
		if name == "" {
			title = "overview"
		}
		b.inspect("console-" + title)
	}
	b.open(url + "shards")
	cells := func(node string) string {
		return fmt.Sprintf(`document.querySelectorAll('a.cell[data-node=%q]').length`, node)
	}
	b.wait(cells("branch-2") + " > 0")
	b.inspect("console-shards")
	moving := eval[[]string](b, `[...document.querySelectorAll('a.cell[data-node="branch-2"]')].map((c) => c.dataset.shard)`)
	b.wait(settled)
	b.click("#drain-branch-2")
	b.wait(`document.querySelector("#confirm-yes") && ` + settled)
	b.click("#confirm-yes")
	b.wait(`document.querySelector("#done") && ` + settled)
	if eval[bool](b, `document.querySelector("#dialog[open]") !== null`) {
		b.click("#dialog [data-close]")
	} else { // a click between a swap and its end follows the link
		b.open(url + "shards")
	}
	b.wait(cells("branch-2") + " === 0")
	for _, shard := range moving {
		b.wait(fmt.Sprintf(`["branch-1", "branch-3"].includes(document.querySelector('a.cell[data-shard=%q]').dataset.node)`, shard))
	}
	b.inspect("console-drained")
}

// A counter has a total.
type (
	event interface{ isEvent() }
	add   struct {
		eventsourcing.Command[counter, int]
		Amount int
	}
	added struct {
		Amount int
		Note   string
	}
	counter struct{ Total int }
)

func (added) isEvent() {}

func (c *counter) add(ctx *eventsourcing.Context[counter, event, int], a add) eventsourcing.Decision[counter, event, int] {
	return ctx.Persist(added{a.Amount, hostile}).ReplyFunc(func() int { return c.Total })
}

func (c *counter) apply(e event) {
	if a, ok := e.(added); ok {
		c.Total += a.Amount
	}
}

// The page of an entity shows its state after any event, and text of events stays text.
func TestEntity(t *testing.T) {
	t.Parallel()
	typ := eventsourcing.Type[counter, event]{
		Name: "counter", Commands: eventsourcing.Commands(eventsourcing.On("add", (*counter).add)), Apply: (*counter).apply,
		Events: codec.Types(codec.Name[added]("added")),
	}
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(inmem.NewJournal(), inmem.NewSnapshotStore())})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rt.Close(context.Background()) }()
	counters, err := eventsourcing.Host(rt, typ)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if _, err = eventsourcing.Ask(t.Context(), counters.Ref("one"), add{Amount: n + 1}); err != nil {
			t.Fatal(err)
		}
	}
	agent, err := console.NewAgent(console.AgentConfig{Runtime: rt, Types: []console.Type{console.TypeOf(typ)}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Close() }()
	c, err := console.New(console.Options{Admin: agent, Prefix: "/console/"})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", c)
	server := httptest.NewServer(mux)
	defer server.Close()
	defer c.Close()
	b := openBrowser(t)
	b.open(c.LoginURL(server.URL))
	b.open(server.URL + "/console/entities/counter%7Cone")
	for n := 5; n >= 1; n-- {
		b.run(set("range", n))
		b.wait(fmt.Sprintf(`document.getElementById("state-at").textContent === "%d" && document.getElementById("state").textContent.includes("%d")`, n, n*(n+1)/2))
	}
	if n := eval[int](b, `document.querySelectorAll("main script").length`); n != 0 {
		t.Errorf("the page has %d scripts in its content, want the notes as text", n)
	}
	b.wait(`document.getElementById("history").textContent.includes(` + fmt.Sprintf("%q", hostile) + `)`)
	b.inspect("console-entity")
	b.leave()
}
