// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/refold-io/refold/sharding"
)

// page is a page of the console. Its file in the folder templates defines the template "main" and,
// for live pages, the template "live".
type page struct {
	name, title string
	pattern     string
	key         string // the letter of its keyboard shortcut, empty for pages that are not in the navigation
	order       int
	live        bool
	needs       needs
	// load sets view.Data. The error is shown on the page.
	load func(ctx context.Context, r *http.Request, v *view) error
}

func pageTable(c *Console) map[string]*page {
	all := map[string]*page{}
	for i, p := range []*page{
		{name: "overview", title: "Overview", pattern: "/{$}", key: "o", live: true, load: c.loadOverview},
		{name: "shards", title: "Shards", pattern: "/shards", key: "s", live: true, needs: needShards, load: c.loadShards},
		{name: "nodes", title: "Nodes", pattern: "/nodes", key: "n", live: true, load: c.loadNodes},
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
		u, ok := c.admitted(w, r, Read)
		if !ok {
			return
		}
		v := c.newView(r, u, p.title)
		v.Page, v.Nav = p.name, c.nav(p.name)
		v.Picture = c.poller.gather(r.Context(), p.needs, c.opts.Interval)
		if err := p.load(r.Context(), r, v); err != nil {
			v.Problem = err.Error()
		}
		c.render(w, http.StatusOK, p.name, "page", v)
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
	v.Data = overviewData{[]series{
		chart(v.Picture.History, "Entities", func(s *sample) int { return s.Entities }),
		chart(v.Picture.History, "Shards placed", func(s *sample) int { return s.Shards }),
		chart(v.Picture.History, "Shards moving", func(s *sample) int { return s.Moving }),
		chart(v.Picture.History, "Commands waiting", func(s *sample) int { return s.Waiting }),
	}}
	return nil
}

func chart(history []sample, title string, value func(*sample) int) series {
	times, values := []byte("[["), []byte("[")
	last := 0
	for i := range history {
		if i > 0 {
			times, values = append(times, ','), append(values, ',')
		}
		last = value(&history[i])
		times, values = fmt.Appendf(times, "%d", history[i].At.Unix()), fmt.Appendf(values, "%d", last)
	}
	return series{title, number(last), string(times) + "]," + string(values) + "]]"}
}

type shardsData struct {
	Type *entityType
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
	// IDs are the first running entities. More reports that there are others.
	IDs  []string
	More bool
	// Targets are the nodes to which the shard can move.
	Targets []string
}

// Text is the number of the shard as text.
func (d *shardDetail) Text() string { return strconv.FormatUint(uint64(d.Number), 10) }

// Link is the query that selects the shard.
func (x cell) Link(typ string) string {
	return "?" + url.Values{"type": {typ}, "shard": {strconv.FormatUint(uint64(x.Shard), 10)}}.Encode() + "#shard"
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
	hosted := map[uint32]bool{}
	for _, h := range d.Type.Hosts {
		for _, x := range h.Cells {
			hosted[x.Shard] = true
		}
	}
	for i := range uint32(d.Type.Total) { //nolint:gosec // the number of shards has 32 bits
		if !hosted[i] {
			d.Homeless = append(d.Homeless, cell{Shard: i})
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
	d := &shardDetail{Type: t.Name, Number: n}
	for _, h := range t.Hosts {
		for _, x := range h.Cells {
			if x.Shard == n {
				d.Node, d.Entities, d.Pinned = h.Name, x.Entities, x.Pinned
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
