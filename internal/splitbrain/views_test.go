// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// brokenNetwork is a cluster in which some nodes do not receive messages of some others. Nodes that
// communicate in both directions, directly or through others, form a domain and have the same view.
// A domain also has some observations of other nodes, which arrived before the fault was noticed:
// the first few of each node, possibly none.
type brokenNetwork struct {
	members  []identity.Member
	delivers [][]bool // delivers[a][b]: messages of a arrive at b
	dead     []bool
	domain   []int         // of each node: the lowest node in it
	observed [][]int       // for each node, the nodes that it finds unreachable, in order
	received map[int][]int // by domain: how many observations of each node have arrived
	seen     map[int]bool  // by domain: whether all its nodes have seen the view
	updated  map[int]bool  // by domain: whether the last change of the leader has arrived
}

func newBrokenNetwork(members []identity.Member, delivers [][]bool, dead []bool) *brokenNetwork {
	n := len(members)
	b := &brokenNetwork{members: members, delivers: delivers, dead: dead, domain: make([]int, n), observed: make([][]int, n), received: map[int][]int{}, seen: map[int]bool{}, updated: map[int]bool{}}
	for i := range n {
		b.domain[i] = i
	}
	for range n {
		for i := range n {
			for j := range n {
				if b.connected(i, j) {
					b.domain[i] = min(b.domain[i], b.domain[j])
				}
			}
		}
	}
	for i := range n {
		for j := range n {
			if i != j && !dead[i] && !b.connected(i, j) {
				b.observed[i] = append(b.observed[i], j)
			}
		}
		if !dead[i] {
			b.received[b.domain[i]] = nil
		}
	}
	return b
}

// connected reports whether two live nodes receive each other's messages.
func (b *brokenNetwork) connected(i, j int) bool {
	return !b.dead[i] && !b.dead[j] && b.delivers[i][j] && b.delivers[j][i]
}

// spread passes random observations of other nodes to each domain, in random order.
func (b *brokenNetwork) spread(rnd *rand.Rand) {
	for _, d := range b.domains() {
		b.received[d] = make([]int, len(b.members))
		all := rnd.IntN(4)
		for i, observed := range b.observed {
			switch {
			case b.domain[i] == d || all == 1:
				b.received[d][i] = len(observed)
			case all > 1:
				b.received[d][i] = rnd.IntN(len(observed) + 1)
			}
		}
		b.seen[d], b.updated[d] = rnd.IntN(8) > 0, rnd.IntN(2) == 0
	}
	for _, observed := range b.observed {
		rnd.Shuffle(len(observed), func(i, j int) { observed[i], observed[j] = observed[j], observed[i] })
	}
}

func (b *brokenNetwork) domains() []int {
	var all []int
	for i, d := range b.domain {
		if i == d && !b.dead[i] {
			all = append(all, d)
		}
	}
	return all
}

// view returns the view of a node.
func (b *brokenNetwork) view(self int) splitbrain.View {
	d := b.domain[self]
	v := splitbrain.View{Members: b.members}
	if b.updated[d] {
		v.Members = leaderChange(b.members)
	}
	unreachable := make([]bool, len(b.members))
	for i, observed := range b.observed {
		for _, j := range observed[:b.received[d][i]] {
			v.Reachability = v.Reachability.Change(b.members[i].Node, b.members[j].Node, membership.Unreachable)
			unreachable[j] = true
		}
	}
	for i, m := range v.Members {
		if unreachable[i] && i != self {
			v.Unreachable = append(v.Unreachable, m.Node)
		}
		if b.domain[i] == d && (b.seen[d] || i == self) {
			v.Seen = append(v.Seen, m.Node)
		}
	}
	v.Leader = leads(v.Members, unreachable, self)
	return v
}

// leads reports whether a node is the leader according to the membership.
func leads(members []identity.Member, unreachable []bool, self int) bool {
	weak := -1
	for i, m := range members {
		switch {
		case unreachable[i] && i != self:
		case m.Status == identity.Up || m.Status == identity.Leaving:
			return i == self
		case m.Status == identity.WeaklyUp && weak < 0:
			weak = i
		}
	}
	return weak == self
}

// continuesAlone reports whether a domain continues alone after one of its nodes has decided: some
// of its nodes survive, and live nodes of other domains are downed. If no node of another domain is
// downed, the remaining nodes decide next.
func (b *brokenNetwork) continuesAlone(t *testing.T, s splitbrain.Settings, self int, lease bool) bool {
	t.Helper()
	v := b.view(self)
	if !v.Leader || len(v.Unreachable) == 0 {
		return false
	}
	r, err := splitbrain.New(b.members[self].Node, s)
	if err != nil {
		t.Fatal(err)
	}
	r.Step(0, v)
	out := r.Tick(time.Minute)
	if s.Strategy == downing.LeaseMajority {
		if !out.AskLease {
			out = r.Tick(2 * time.Minute)
		}
		if out.AskLease {
			out = r.Step(2*time.Minute, splitbrain.LeaseAnswer{Held: lease})
		}
	}
	survivors, elsewhere := false, false
	for i, m := range v.Members {
		here, downed := b.domain[i] == b.domain[self], slices.Contains(out.Down, m.Node)
		survivors = survivors || here && m.Status != identity.Down && m.Status != identity.Exiting && !downed
		elsewhere = elsewhere || !here && downed && !b.dead[i]
	}
	return survivors && elsewhere
}

// check returns the domains that continue alone, and fails if there are two. Any node that regards
// itself as the leader may be the first to decide for its domain.
func (b *brokenNetwork) check(t *testing.T, s splitbrain.Settings) (alive []int) {
	t.Helper()
	for self, d := range b.domain {
		if b.dead[self] {
			continue
		}
		if b.continuesAlone(t, s, self, true) && !slices.Contains(alive, d) {
			alive = append(alive, d)
		}
		if s.Strategy == downing.LeaseMajority && b.continuesAlone(t, s, self, false) {
			t.Errorf("%s: node %d decides without the lease, but some nodes of its domain survive: %v", s.Strategy, self, b)
		}
	}
	if len(alive) > 1 && s.Strategy != downing.LeaseMajority { // only one domain gets the lease
		t.Errorf("%s %d %t, role %q: the domains %v all survive: %v", s.Strategy, s.QuorumSize, s.KeepLoneOldest, s.Role, alive, b)
	}
	return alive
}

func (b *brokenNetwork) String() string {
	s := ""
	for i, m := range b.members {
		s += fmt.Sprintf("\nnode %d: %v@%d, domain %d, finds %v unreachable", i, m.Status, m.UpNumber, b.domain[i], b.observed[i])
	}
	for _, d := range b.domains() {
		s += fmt.Sprintf("\ndomain %d: received observations %v, seen %t, leader's change received %t", d, b.received[d], b.seen[d], b.updated[d])
	}
	return s
}

// upMembers returns n members with the status Up and random ages.
func upMembers(n int, rnd *rand.Rand) []identity.Member {
	var all []identity.Member
	for i, age := range rnd.Perm(n) {
		m := aged(i, identity.Up, i%3 == 1)
		m.UpNumber = int32(age + 1)
		all = append(all, m)
	}
	return all
}

// TestBrokenLinks tries all combinations of broken links in small clusters, and random ones in
// larger clusters.
func TestBrokenLinks(t *testing.T) {
	t.Parallel()
	larger := effort.Count[uint64](60, 200, 20000)
	try := func(t *testing.T, members []identity.Member, delivers [][]bool, dead []bool, rnd *rand.Rand) {
		t.Helper()
		b := newBrokenNetwork(members, delivers, dead)
		b.spread(rnd)
		for i, s := range strategies(len(members)) {
			if s.Strategy == downing.StaticQuorum && len(members) > 2*s.QuorumSize-1 {
				continue // more members than the quorum allows
			}
			if effort.Soak() || len(members) < 4 || rnd.IntN(3) == 0 || i == 0 {
				b.check(t, s)
			}
		}
	}
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint("all of ", n), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(uint64(n), 7))
			step := 1
			if n == 4 {
				step = effort.Count(5, 1, 1)
			}
			for code := 0; code < 1<<(n*(n-1)) && !t.Failed(); code += step {
				delivers := matrix(n)
				for bit := range n * (n - 1) {
					from, to := bit/(n-1), bit%(n-1)
					if to >= from {
						to++
					}
					delivers[from][to] = code>>bit&1 == 1
				}
				for range 5 - n {
					try(t, upMembers(n, rnd), delivers, make([]bool, n), rnd)
				}
			}
		})
	}
	t.Run("larger clusters", func(t *testing.T) {
		t.Parallel()
		for seed := uint64(0); seed < larger && !t.Failed(); seed++ {
			rnd := rand.New(rand.NewPCG(seed, 8))
			n := 5 + rnd.IntN(8)
			members := upMembers(n, rnd)
			for i := range members {
				if rnd.IntN(8) == 0 {
					members[i].Status = []identity.Status{identity.Joining, identity.WeaklyUp, identity.Leaving, identity.Exiting, identity.Down}[rnd.IntN(5)]
				}
			}
			dead := make([]bool, n)
			for i := range dead {
				dead[i] = rnd.IntN(12) == 0
			}
			try(t, members, randomFaults(n, rnd), dead, rnd)
		}
	})
}

func matrix(n int) [][]bool {
	s := make([][]bool, n)
	for i := range s {
		s[i] = make([]bool, n)
	}
	return s
}

// randomFaults returns a table of deliveries for a cluster that is cut into two or three parts, in
// one or both directions. It may change some pairs in addition.
func randomFaults(n int, rnd *rand.Rand) [][]bool {
	delivers, side, sides, oneWay, pairs := matrix(n), make([]int, n), 2+rnd.IntN(2), rnd.IntN(2) == 0, 0
	for i := range side {
		side[i] = rnd.IntN(sides)
	}
	if rnd.IntN(2) == 0 {
		pairs = rnd.IntN(n)
	}
	for i := range n {
		for j := range n {
			delivers[i][j] = side[i] == side[j] || oneWay && side[i] < side[j]
		}
	}
	for range pairs {
		i, j := rnd.IntN(n), rnd.IntN(n)
		delivers[i][j] = !delivers[i][j]
	}
	return delivers
}

func node(name string) identity.Node { return identity.Node{Name: name, UID: 1} }

func nodes(names string) []identity.Node {
	var ns []identity.Node
	for name := range strings.FieldsSeq(names) {
		ns = append(ns, node(name))
	}
	return ns
}

func names(ns []identity.Node) string {
	var s []string
	for _, n := range ns {
		s = append(s, n.Name)
	}
	return strings.Join(s, " ")
}

// parse reads a view of the leader. Members are "name:status@age+role!". All parts except the name
// are optional. The defaults are the status Up, the position in the line as the age, and reachable.
// Records are "a>b"; without records the first reachable member observes all that are unreachable.
// The members that have seen the view are "seen=a,b", by default all reachable ones.
func parse(t *testing.T, line string) splitbrain.View {
	t.Helper()
	v := splitbrain.View{Leader: true}
	var seen []identity.Node
	for i, word := range strings.Fields(line) {
		if list, found := strings.CutPrefix(word, "seen="); found {
			seen = nodes(strings.ReplaceAll(list, ",", " "))
			continue
		}
		if observer, subject, found := strings.Cut(word, ">"); found {
			v.Reachability = v.Reachability.Change(node(observer), node(subject), membership.Unreachable)
			continue
		}
		rest, unreachable := strings.CutSuffix(word, "!")
		rest, role, _ := strings.Cut(rest, "+")
		rest, age, _ := strings.Cut(rest, "@")
		name, status, _ := strings.Cut(rest, ":")
		m := identity.Member{Node: node(name), Status: statusOf(t, status), UpNumber: int32(i + 1)}
		if role != "" {
			m.Roles = []string{role}
		}
		if m.Status == identity.Joining || m.Status == identity.WeaklyUp {
			m.UpNumber = math.MaxInt32
		}
		if age != "" {
			n, err := strconv.ParseInt(age, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			m.UpNumber = int32(n)
		}
		v.Members = append(v.Members, m)
		if unreachable {
			v.Unreachable = append(v.Unreachable, m.Node)
		}
	}
	slices.SortFunc(v.Members, func(a, b identity.Member) int { return a.Node.Compare(b.Node) })
	slices.SortFunc(v.Unreachable, identity.Node.Compare)
	v.Seen = seen
	if seen == nil {
		for i := range v.Members {
			if !slices.Contains(v.Unreachable, v.Members[i].Node) {
				v.Seen = append(v.Seen, v.Members[i].Node)
			}
		}
	}
	if v.Reachability.AllReachable() {
		v.Reachability = observed(v)
	}
	return v
}

// observed returns the observations with which the first reachable member finds the others
// unreachable.
func observed(v splitbrain.View) membership.Reachability {
	var r membership.Reachability
	for i := range v.Members {
		if slices.Contains(v.Unreachable, v.Members[i].Node) {
			continue
		}
		for _, n := range v.Unreachable {
			r = r.Change(v.Members[i].Node, n, membership.Unreachable)
		}
		break
	}
	return r
}

func statusOf(t *testing.T, s string) identity.Status {
	t.Helper()
	if s == "" {
		return identity.Up
	}
	for status := identity.Joining; status <= identity.ReadyForShutdown; status++ {
		if status.String() == s {
			return status
		}
	}
	t.Fatalf("unknown status %q", s)
	return 0
}

func resolver(t *testing.T, self string, s splitbrain.Settings) *splitbrain.Resolver {
	t.Helper()
	r, err := splitbrain.New(node(self), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outcome returns the decision of a node about a view, and the downed nodes.
func outcome(t *testing.T, self string, s splitbrain.Settings, v splitbrain.View) (splitbrain.Decision, []identity.Node) {
	t.Helper()
	if s.Strategy != downing.Off {
		s.StableAfter = 10 * time.Second
	}
	r := resolver(t, self, s)
	r.Step(0, v)
	out := r.Tick(10 * time.Second)
	for _, note := range out.Notes {
		if note.Kind == splitbrain.Decided {
			return note.Decision, out.Down
		}
	}
	return 0, out.Down
}
