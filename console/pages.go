// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/sharding"
)

// page is a page of the console. Its file in the folder templates defines the template "main" and,
// for live pages, the template "live".
type page struct {
	name, title string
	pattern     string
	within      string // the page of the navigation to which the page belongs; defaults to the page itself
	key         string // the letter of its keyboard shortcut, empty for pages that are not in the navigation
	order       int
	live        bool
	// parts are the templates that a page can request alone, in the field part.
	parts []string
	needs needs
	// load sets view.Data. The error is shown on the page.
	load func(ctx context.Context, r *http.Request, v *view) error
}

func pageTable(c *Console) map[string]*page {
	all := map[string]*page{}
	for i, p := range []*page{
		{name: "overview", title: "Overview", pattern: "/{$}", key: "o", live: true, load: c.loadOverview},
		{name: "entities", title: "Entities", pattern: "/entities", key: "e", load: c.loadEntities},
		{name: "entity", title: "Entity", pattern: "/entities/{id}", within: "entities", parts: []string{"history"}, load: c.loadEntity},
		{name: "projections", title: "Projections", pattern: "/projections", key: "p", live: true, load: c.loadProjections},
		{name: "shards", title: "Shards", pattern: "/shards", key: "s", live: true, needs: needShards, load: c.loadShards},
		{name: "nodes", title: "Nodes", pattern: "/nodes", key: "n", live: true, needs: needGroups, load: c.loadNodes},
		{name: "tail", title: "Tail", pattern: "/tail", key: "t", live: true, needs: needTail, load: c.loadTail},
		{name: "data", title: "Replicated data", pattern: "/data", key: "d", load: c.loadData},
		{name: "journal", title: "Journal", pattern: "/journal", key: "j", live: true, needs: needJournal, load: c.loadJournal},
	} {
		p.order = i
		all[p.name] = p
	}
	return all
}

// shown returns the handler of a page. With JavaScript, a page replaces parts of itself; these
// requests get the part that they name in the header HX-Target.
func (c *Console) shown(p *page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok := c.admitted(w, r, readAction)
		if !ok {
			return
		}
		v := c.newView(r, u, p.title)
		v.Page, v.Nav = p.name, c.nav(cmp.Or(p.within, p.name))
		if r.Header.Get("Hx-Request") != "" && slices.Contains(p.parts, r.FormValue("part")) {
			v.Part = r.FormValue("part")
		}
		v.Picture = c.poller.gather(r.Context(), p.needs, c.opts.Interval)
		if err := p.load(r.Context(), r, v); err != nil {
			v.Problem = err.Error()
		}
		c.render(w, http.StatusOK, p.name, cmp.Or(v.Part, "page"), v)
	})
}

type overviewData struct{ Series []series }

// series is the data of a chart: the times in seconds and the values.
type series struct {
	Title string
	Last  string
	// Points is the data as JSON, read by app.js.
	Points string
}

func (c *Console) loadOverview(_ context.Context, _ *http.Request, v *view) error {
	p := v.Picture
	d := overviewData{}
	if p.Loaded() {
		d.Series = []series{
			chart(p.History, "Commands per second", func(s *sample) float64 { return s.Rate }),
			chart(p.History, "p99 of commands, ms", func(s *sample) float64 { return float64(s.P99.Microseconds()) / 1000 }),
		}
	}
	d.Series = append(d.Series, chart(p.History, "Entities", func(s *sample) float64 { return float64(s.Entities) }))
	if len(p.Types) > 0 {
		d.Series = append(d.Series, chart(p.History, "Shards moving", func(s *sample) float64 { return float64(s.Moving) }))
	}
	d.Series = append(d.Series, chart(p.History, "Commands waiting", func(s *sample) float64 { return float64(s.Waiting) }))
	v.Data = d
	return nil
}

func chart(history []sample, title string, value func(*sample) float64) series {
	times, values := []byte("[["), []byte("[")
	last := 0.0
	for i := range history {
		if i > 0 {
			times, values = append(times, ','), append(values, ',')
		}
		last = value(&history[i])
		times, values = strconv.AppendFloat(times, float64(history[i].At.UnixMilli())/1000, 'f', -1, 64), fmt.Appendf(values, "%.4g", last)
	}
	text := number(int(last))
	if last < 100 && last != float64(int(last)) {
		text = fmt.Sprintf("%.3g", last)
	}
	return series{title, text, string(times) + "]," + string(values) + "]]"}
}

type projectionsData struct{ Rows []projectionRow }

type projectionRow struct {
	*projection

	Trend series
}

func (c *Console) loadProjections(_ context.Context, _ *http.Request, v *view) error {
	var d projectionsData
	for _, x := range v.Picture.Projections {
		d.Rows = append(d.Rows, projectionRow{x, chart(v.Picture.History, "Lag of "+x.Name+", seconds", func(s *sample) float64 { return s.Lags[x.Name].Seconds() })})
	}
	v.Data = d
	return nil
}

type shardsData struct {
	Type *entityType
	// By is "load" if the colours show the load, and empty if they show entities.
	By string
	// Measured reports that the load of a shard is known.
	Measured bool
	// Homeless are the shards that no node hosts.
	Homeless []cell
	// Shard is the selected shard, nil if there is none.
	Shard *shardDetail
}

// shardDetail describes the selected shard.
type shardDetail struct {
	Type         string
	Number       uint32
	Node, Pinned string
	Entities     int
	PerSecond    *float64
	Move         *sharding.AdminMove
	// IDs are the first running entities. More reports that there are others.
	IDs  []string
	More bool
	// Targets are the nodes to which the shard can move.
	Targets []string
}

// Text is the number of the shard as text.
func (d *shardDetail) Text() string { return strconv.FormatUint(uint64(d.Number), 10) }

// Link is the query that selects the shard, with the choice of the colours.
func (x cell) Link(typ, by string) string {
	return link("", "", "type", typ, "shard", strconv.FormatUint(uint64(x.Shard), 10), "by", by) + "#shard"
}

// About describes the shard, whose node is empty if it has none.
func (x cell) About(node string) string {
	text := fmt.Sprintf("Shard %d without a node", x.Shard)
	if node != "" {
		text = fmt.Sprintf("Shard %d on %s: %s running %s", x.Shard, node, number(x.Entities), verb(x.Entities, "entity", "entities"))
	}
	if x.PerSecond != nil {
		text += ", " + rateText(*x.PerSecond) + " commands per second"
	}
	if x.Pinned != "" {
		text += ", kept on " + x.Pinned
	}
	if x.Move != nil {
		text += ", " + x.Move.Step + ", " + moveText(x.Move)
	}
	return text
}

// moveText returns the nodes of a move.
func moveText(m *sharding.AdminMove) string { return m.From + " → " + cmp.Or(m.To, "?") }

// Class is the class of the colour.
func (x cell) Class(by string) string {
	switch {
	case by == "":
		return "h" + strconv.Itoa(x.Heat)
	case x.PerSecond == nil:
		return "unknown"
	}
	return "h" + strconv.Itoa(x.LoadHeat)
}

const maxIDs = 100 // of a selected shard

func (c *Console) loadShards(ctx context.Context, r *http.Request, v *view) error {
	d := &shardsData{}
	v.Data = d
	if name := r.FormValue("type"); name != "" {
		if d.Type = v.Picture.typ(name); d.Type == nil {
			return fmt.Errorf("no node has the entity type %q", name)
		}
	} else if len(v.Picture.Types) > 0 {
		d.Type = v.Picture.Types[0]
	}
	if d.Type == nil {
		return nil
	}
	if r.FormValue("by") == "load" {
		d.By = "load"
	}
	hosted := map[uint32]bool{}
	for _, h := range d.Type.Hosts {
		d.Measured = d.Measured || h.PerSecond != nil
		for _, x := range h.Cells {
			hosted[x.Shard] = true
		}
	}
	for i := range uint32(d.Type.Total) { //nolint:gosec // the number of shards has 32 bits
		if !hosted[i] {
			d.Homeless = append(d.Homeless, cell{Shard: i, Move: d.Type.moves[i]})
		}
	}
	if text := r.FormValue("shard"); text != "" && r.FormValue("page") == "" { // not for streams
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n >= uint64(d.Type.Total) { //nolint:gosec // the number of shards has 32 bits
			return fmt.Errorf("type %q has no shard %q", d.Type.Name, text)
		}
		d.Shard = c.detail(ctx, d.Type, uint32(n))
	}
	return nil
}

func (c *Console) detail(ctx context.Context, t *entityType, n uint32) *shardDetail {
	d := &shardDetail{Type: t.Name, Number: n, Move: t.moves[n]}
	for _, h := range t.Hosts {
		for _, x := range h.Cells {
			if x.Shard == n {
				d.Node, d.Entities, d.Pinned, d.PerSecond = h.Name, x.Entities, x.Pinned, x.PerSecond
			}
		}
	}
	for _, h := range t.Hosts {
		if !h.Proxy && !h.Drained && !h.Leaving && h.Name != d.Node {
			d.Targets = append(d.Targets, h.Name)
		}
	}
	slices.Sort(d.Targets)
	if d.Node == "" {
		return d
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for id, err := range c.shards.Entities(ctx, d.Node, t.Name, sharding.Shard(n)) {
		if d.More = len(d.IDs) == maxIDs; err != nil || d.More {
			break
		}
		d.IDs = append(d.IDs, id)
	}
	return d
}

type nodesData struct {
	// Reach is the matrix: Reach[i][j] describes how node i reaches node j.
	Reach [][]reach
}

type reach struct{ From, To, State string }

func (c *Console) loadNodes(_ context.Context, _ *http.Request, v *view) error {
	var d nodesData
	const most = 40 // a larger matrix is unreadable
	if nodes := v.Picture.Nodes; len(nodes) <= most {
		for _, from := range nodes {
			var row []reach
			for _, to := range nodes {
				state := "reachable"
				switch {
				case from == to:
					state = "self"
				case slices.Contains(to.UnreachableTo, from.Node):
					state = "unreachable"
				case from.Unreachable:
					state = "unknown"
				}
				row = append(row, reach{from.Name, to.Name, state})
			}
			d.Reach = append(d.Reach, row)
		}
	}
	v.Data = d
	return nil
}

// tail is the shared memory of new events.
type tail struct {
	begun bool
	next  journal.Offset // after all pages
	poll  time.Time      // the last one that needed new events
	pages []tailPage
	count uint64
}

// tailPage is a page of new events of all entities.
type tailPage struct {
	nr     uint64
	events []inspect.EventView
	from   journal.Offset // before the events
}

const (
	maxTailPages = 50
	maxTailReads = 5 // per poll
	// tailGap is the time without a poll after which the tail begins at the end again.
	tailGap = time.Minute
)

// follow reads the events since the last call.
func (c *Console) follow(ctx context.Context, t *tail, p *picture) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	idle := p.At.Sub(t.poll)
	if t.poll = p.At; idle > tailGap {
		t.begun, t.pages = false, nil
	}
	if !t.begun {
		page, err := c.inspect.Tail(ctx, "", inspect.TailQuery{FromEnd: true})
		if err != nil {
			p.TailProblem = err.Error()
			return
		}
		t.begun, t.next = true, page.Next
	}
	for range maxTailReads {
		page, err := c.inspect.Tail(ctx, "", inspect.TailQuery{After: t.next, Limit: 200})
		if err != nil {
			p.TailProblem = err.Error()
			break
		}
		if len(page.Events) > 0 {
			t.count++
			t.pages = append(t.pages, tailPage{t.count, page.Events, t.next})
			t.pages = t.pages[max(0, len(t.pages)-maxTailPages):]
		}
		t.next = page.Next
		if !page.More {
			break
		}
	}
	p.Tail, p.tailNext, p.tailCount = slices.Clone(t.pages), t.next, t.count
}

// tailState is the position of a stream of new events.
type tailState struct {
	begun bool
	after journal.Offset // the position to resume from, then that of the last event
	page  uint64         // the number of the last page
	rows  []tailRow
	seen  map[string]bool // the events of the last rows, because a resumed stream reads some twice
}

type tailRow struct {
	inspect.EventView

	from journal.Offset // a position before the event
}

// origin is the position from which another stream reads the events of the page and all later ones.
func (s *tailState) origin() journal.Offset {
	if len(s.rows) > 0 {
		return s.rows[0].from
	}
	return s.after
}

type tailData struct {
	Type, Tag, ID string
	Types         []string
	// Rows are the events, newest first.
	Rows []tailRow
	// After is the position of a stream that begins with this page.
	After journal.Offset
	// Limit is the number of events that a page keeps.
	Limit int
}

const maxTailRows = 200

func (c *Console) loadTail(ctx context.Context, r *http.Request, v *view) error {
	d := &tailData{Type: r.FormValue("type"), Tag: r.FormValue("tag"), ID: r.FormValue("id"), Limit: maxTailRows}
	v.Data = d
	p, s := v.Picture, v.stream
	if s == nil {
		s = &tailState{}
	}
	if s.seen == nil {
		s.seen, s.after = map[string]bool{}, cmp.Or(s.after, journal.Offset(r.FormValue("after")))
	}
	if !s.begun {
		if s.after != "" {
			if err := c.resume(ctx, s, d); err != nil { // the next call continues
				return err
			}
			s.page = p.tailCount // resume has read these pages
		}
		s.begun = true
	}
	for i := range p.Tail {
		if page := &p.Tail[i]; page.nr > s.page {
			s.add(page.events, page.from, d)
		}
	}
	if p.tailCount > s.page || s.after == "" {
		s.page, s.after = p.tailCount, p.tailNext
	}
	d.After = s.after
	d.Rows = slices.Clone(s.rows)
	slices.Reverse(d.Rows)
	if v.stream == nil {
		if catalog, err := c.inspect.Types(ctx, ""); err == nil {
			for i := range catalog.Types {
				d.Types = append(d.Types, catalog.Types[i].Name)
			}
		}
	}
	if p.TailProblem != "" {
		return errors.New(p.TailProblem)
	}
	return nil
}

// resume reads the events after a position, up to the end.
func (c *Console) resume(ctx context.Context, s *tailState, d *tailData) error {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	for {
		page, err := c.inspect.Tail(ctx, "", inspect.TailQuery{After: s.after, Tag: d.Tag, ID: d.ID, Types: typesOf(d.Type), Limit: maxTailRows})
		if err != nil {
			return err
		}
		s.add(page.Events, s.after, d)
		if s.after = page.Next; !page.More {
			return nil
		}
	}
}

func typesOf(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// add appends the events after a position that match the filters.
func (s *tailState) add(events []inspect.EventView, from journal.Offset, d *tailData) {
	for i := range events {
		e := &events[i]
		key := e.ID + "\x00" + strconv.FormatUint(e.Nr, 10)
		typ, _, _ := strings.Cut(e.ID, "|")
		if d.Type != "" && typ != d.Type || d.Tag != "" && !slices.Contains(e.Tags, d.Tag) || d.ID != "" && e.ID != d.ID || s.seen[key] {
			continue
		}
		s.seen[key] = true
		s.rows = append(s.rows, tailRow{*e, from})
	}
	if len(s.seen) > 20*maxTailRows { // events that are read twice follow each other closely
		clear(s.seen)
		for i := range s.rows {
			s.seen[s.rows[i].ID+"\x00"+strconv.FormatUint(s.rows[i].Nr, 10)] = true
		}
	}
	s.rows = slices.Clone(s.rows[max(0, len(s.rows)-maxTailRows):])
}

type dataData struct {
	Replicator, Prefix, Key string
	Stats                   []dataStat
	Keys                    []ddata.AdminKey
	More                    bool
	KeysProblem             string
	Value                   *ddata.AdminValue
	ValueProblem            string
	Diff                    *ddata.Diff
	DiffProblem             string
}

// dataStat is the state of a replicator on a node.
type dataStat struct {
	ddata.AdminStat

	Node, Problem string
	// Same reports that the digest is that of the first node with this replicator.
	Same bool
}

const (
	maxDataKeys  = 200
	maxDiffKeys  = 50
	maxDataValue = 256 << 10
)

func (c *Console) loadData(ctx context.Context, r *http.Request, v *view) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d := &dataData{Replicator: r.FormValue("replicator"), Prefix: r.FormValue("prefix"), Key: r.FormValue("key")}
	v.Data = d
	nodes := v.Picture.answering()
	found := make([][]dataStat, len(nodes))
	var all sync.WaitGroup
	for i, m := range nodes {
		all.Go(func() {
			_, stats, err := c.data.Stats(ctx, ddata.At{Node: m.Name})
			for _, s := range stats {
				found[i] = append(found[i], dataStat{AdminStat: s, Node: m.Name})
			}
			if err != nil && !errors.Is(err, ddata.ErrNoReplicator) {
				found[i] = append(found[i], dataStat{Node: m.Name, Problem: err.Error()})
			}
		})
	}
	all.Wait()
	d.Stats = slices.Concat(found...)
	slices.SortStableFunc(d.Stats, func(a, b dataStat) int { return cmp.Compare(a.Replicator, b.Replicator) })
	digests, holders := map[string]string{}, []string{}
	for i := range d.Stats {
		s := &d.Stats[i]
		if s.Problem != "" {
			continue
		}
		if digests[s.Replicator] == "" {
			digests[s.Replicator] = s.Digest
		}
		s.Same = s.Digest == digests[s.Replicator]
		if d.Replicator = cmp.Or(d.Replicator, s.Replicator); s.Replicator == d.Replicator {
			holders = append(holders, s.Node)
		}
	}
	if len(holders) == 0 {
		return nil
	}
	at := ddata.At{Node: holders[0], Replicator: d.Replicator}
	all.Go(func() {
		for k, err := range c.data.Keys(ctx, at, d.Prefix, true) {
			if err != nil {
				d.KeysProblem = err.Error()
				return
			}
			if d.More = len(d.Keys) == maxDataKeys; d.More {
				return
			}
			d.Keys = append(d.Keys, k)
		}
	})
	if d.Key != "" {
		all.Go(func() {
			var err error
			if d.Value, err = c.data.GetJSON(ctx, at, d.Key, "local"); err != nil {
				d.ValueProblem = err.Error()
			}
		})
	}
	if len(holders) > 1 {
		all.Go(func() {
			var err error
			if d.Diff, err = c.data.Diff(ctx, d.Replicator, holders, maxDiffKeys); err != nil {
				d.DiffProblem = err.Error()
			}
		})
	}
	all.Wait()
	return nil
}

// JSON is the value of the selected key for the template tree.
func (d *dataData) JSON() json.RawMessage {
	if d.Value == nil || len(d.Value.Data) > maxDataValue {
		return nil
	}
	return d.Value.Data
}

type journalData struct {
	Catalog *inspect.Catalog
	Counts  []typeCount
	// Node is the node that verifies.
	Node string
}

type typeCount struct {
	Type string
	inspect.TypeCount
}

func (c *Console) loadJournal(_ context.Context, _ *http.Request, v *view) error {
	p := v.Picture
	d := &journalData{Catalog: p.Catalog}
	v.Data = d
	if all := p.answering(); len(all) > 0 {
		d.Node = all[0].Name
	}
	if job := p.Verify; job != nil {
		for _, name := range slices.Sorted(maps.Keys(job.ByType)) {
			d.Counts = append(d.Counts, typeCount{name, job.ByType[name]})
		}
	}
	if p.CatalogProblem != "" {
		return errors.New(p.CatalogProblem)
	}
	return nil
}
