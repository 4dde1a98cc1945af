// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/sharding/allocation"
)

// maxRequests is the maximum number of shards in one AskStrategy.
const maxRequests = 1000

// getHomes replies with the homes of shards. For a shard that has no home or is moving, and for a
// shard whose home is terminating or has not registered, the reply follows when the shard has a home.
func (m *Machine) getHomes(from identity.Node, shards []Shard) {
	if !m.isRegistered(from) {
		return // an unregistered node would not receive the BeginHandOff of these shards
	}
	var homes homeList
	for _, s := range shards {
		home, found := m.state.Home(s)
		switch {
		case int(s) >= m.cfg.Shards:
			m.note(Note{Kind: Ignored, Node: from, Message: GetHomes, Shards: []Shard{s}})
		case m.moving[s] != nil:
			m.moving[s].requesters[s] = with(m.moving[s].requesters[s], from)
		case m.phase < Active:
			m.requestHome(s, from, true)
		case found && (m.isTerminating(home) || m.instances[home] == 0):
			// A home that has not registered with this coordinator may have stopped before the
			// previous coordinator stored this fact.
			m.undecided[s] = with(m.undecided[s], from)
		case found:
			homes.add(home, s)
		default:
			m.requestHome(s, from, true)
		}
	}
	m.sendHomes(from, homes.list)
}

// requestHome requests a home for a shard. A new shard is remembered first.
func (m *Machine) requestHome(s Shard, by identity.Node, asks bool) {
	if int(s) < m.cfg.Shards { // a stored state may have had more shards
		m.requests.add(s, by, asks, !m.cfg.Remember || m.remembered[s])
	}
}

// requestNewHome requests a new home for a shard that has lost its home, and adds the requesters
// that wait for the shard.
func (m *Machine) requestNewHome(s Shard, from identity.Node) {
	left := departure{from, m.now}
	if h := m.moving[s]; h != nil {
		left.since = h.begun
		m.dropMoving(h, s)
		for _, n := range h.requesters[s] {
			m.requestHome(s, n, true)
		}
	}
	for _, n := range m.undecided[s] {
		m.requestHome(s, n, true)
	}
	delete(m.undecided, s)
	if m.clusterIsStopping() {
		return // any new home would stop soon
	}
	if m.requestHome(s, m.cfg.Self, false); int(s) < m.cfg.Shards {
		m.departed[s] = left
	}
}

// answerUndecided replies to requests for shards whose home has registered.
func (m *Machine) answerUndecided(shards []Shard) {
	if len(m.undecided) == 0 {
		return
	}
	for _, s := range shards {
		nodes := m.undecided[s]
		delete(m.undecided, s)
		for _, n := range nodes {
			m.getHomes(n, []Shard{s})
		}
	}
}

func (m *Machine) strategyView() allocation.View {
	regions := slices.Clone(m.nextState().regions)
	regions = slices.DeleteFunc(regions, func(r allocation.Region) bool { return m.unavailable(r.Node) })
	view := allocation.View{Regions: regions, Moving: m.Moving(), Pinned: m.pinned(), Members: m.view.Members, Unreachable: m.view.Unreachable, Role: m.cfg.Role}
	m.addLoad(&view)
	return view
}

func (m *Machine) askHomes() {
	m.enoughRegions = m.enoughRegions || len(m.alive) >= m.cfg.MinRegions
	if m.phase != Active || !m.enoughRegions {
		return
	}
	if m.adding.id == 0 && m.adding.retryAt == Never {
		if shards := m.requests.collect(&m.requests.unknown, unknown, len(m.requests.unknown)); len(shards) > 0 {
			m.remember(shards)
		}
	}
	if m.strategyCall.id != 0 {
		return
	}
	if len(m.requests.waiting) == 0 {
		m.probe = probe{}
		return
	}
	if len(m.probe.waiting) > 0 {
		return // avoids building a view of all regions for each probe response
	}
	view := m.strategyView()
	if len(view.Regions) == 0 || !m.probed(&view) {
		return
	}
	view = m.withoutSilent(view)
	m.strategyCall.shards = m.requests.collect(&m.requests.waiting, waiting, maxRequests)
	if len(m.strategyCall.shards) == 0 {
		return
	}
	m.strategyCall.id = m.id()
	free := m.takeDecided(&view)
	if len(free) == 0 { // the strategy has nothing to decide
		m.homesChosen(HomesChosen{ID: m.strategyCall.id})
		m.decide()
		return
	}
	requests := make([]allocation.Request, len(free))
	for i, s := range free {
		requests[i] = allocation.Request{Shard: s, Requester: m.requests.byShard[s].first}
	}
	m.out.Ask = &AskStrategy{ID: m.strategyCall.id, Requests: requests, View: view}
}

// remember stores shards as remembered. They get a home afterwards.
func (m *Machine) remember(shards []Shard) {
	m.adding = rememberCall{id: m.id(), shards: shards, retryAt: Never}
	m.out.AddShards = &AddShards{ID: m.adding.id, Shards: shards}
}

func (m *Machine) tickRequests() {
	if w := &m.requests; m.now >= w.retryAt {
		w.retryAt = Never
		w.enqueueAll(w.collect(&w.postponed, postponed, len(w.postponed)))
	}
	if m.now >= m.adding.retryAt {
		m.remember(m.adding.shards)
	}
}

func (m *Machine) shardsAdded(in ShardsAdded) {
	if in.ID != m.adding.id || in.ID == 0 {
		return
	}
	if in.Failed {
		m.adding.id, m.adding.retryAt = 0, m.now+m.cfg.StoreRetry
		m.note(Note{Kind: SaveRetried, Shards: m.adding.shards})
		return
	}
	for _, s := range m.adding.shards {
		m.remembered[s] = true
	}
	m.requests.enqueueAll(m.adding.shards)
	m.adding = rememberCall{retryAt: Never}
}

func (m *Machine) homesChosen(in HomesChosen) {
	if in.ID != m.strategyCall.id || in.ID == 0 {
		return
	}
	m.strategyCall.id = answered
	var homes homeList
	var none []Shard
	next := m.nextState()
	free := len(m.strategyCall.shards) - len(m.strategyCall.decided)
	chosen := slices.Concat(in.Homes[:min(free, len(in.Homes))], make([]identity.Node, max(0, free-len(in.Homes))), m.strategyCall.decided)
	for i, s := range m.strategyCall.shards {
		n := chosen[i]
		if _, known := next.Region(n); !known || m.unavailable(n) {
			none = append(none, s)
			continue
		}
		homes.add(n, s)
	}
	if len(none) > 0 {
		m.note(Note{Kind: NotAllocated, Shards: none, Count: len(none)})
		m.requests.postpone(none, m.now+m.cfg.RetryInterval)
	}
	if len(homes.list) == 0 {
		m.strategyCall = strategyCall{}
		return
	}
	slices.SortFunc(homes.list, func(a, b Home) int { return a.Node.Compare(b.Node) })
	m.queue = append(m.queue, request{kind: HomesAllocated, homes: homes.list})
}

func (m *Machine) homesAllocated(n identity.Node, shards []Shard) {
	var requests homeList // shards that need homes, by requester
	for _, s := range shards {
		for _, requester := range m.requests.take(s) {
			if requester != n {
				requests.add(requester, s)
			}
		}
	}
	if m.isTerminating(n) {
		return // these shards get another home soon
	}
	if has(m.leaving, n) { // these shards are being moved
		for _, r := range requests.list {
			m.getHomes(r.Node, r.Shards)
		}
		return
	}
	m.host(n, shards)
	for _, r := range requests.list {
		m.sendHomes(r.Node, []Home{{n, r.Shards}})
	}
}

// host sends Host to a region and repeats it until the shards have started. A region that has not
// registered with this coordinator receives Host when it registers.
func (m *Machine) host(n identity.Node, shards []Shard) {
	if len(shards) == 0 || m.instances[n] == 0 {
		return
	}
	h := hostCommand{due: m.now + m.cfg.StartTimeout, node: n, round: m.nextRound(), shards: shards}
	for _, s := range shards {
		m.unstarted[s] = h.round
	}
	m.hostCommands = append(m.hostCommands, h)
	m.sendShards(n, Host, h.round, shards)
}

func (m *Machine) hosted(from identity.Node, msg Message) {
	for _, s := range msg.Shards {
		if home, _ := m.state.Home(s); home == from && m.unstarted[s] == msg.Round {
			delete(m.unstarted, s)
			delete(m.departed, s)
		}
	}
}

func (m *Machine) tickHosting() {
	for len(m.hostCommands) > 0 && m.now >= m.hostCommands[0].due {
		h := m.hostCommands[0]
		m.hostCommands = m.hostCommands[1:]
		h.shards = slices.DeleteFunc(slices.Clone(h.shards), func(s Shard) bool {
			home, _ := m.state.Home(s)
			return home != h.node || m.unstarted[s] != h.round || m.moving[s] != nil
		})
		if len(h.shards) > 0 && !m.isTerminating(h.node) {
			m.host(h.node, h.shards) // in a new round: the region may have received Homes with these shards in a later round than h.round, and ignores that round
		}
	}
}

// stage is the progress of a shard that needs a home.
type stage uint8

const (
	waiting   stage = iota // the strategy is to choose a home
	unknown                // the shard is to be remembered first
	asked                  // the strategy is choosing, or has chosen, a home
	postponed              // no region was available
)

type allocationRequest struct {
	stage      stage
	first      identity.Node
	requesters []identity.Node // sorted
	removed    identity.Node   // the home that was removed; zero for a shard without such a home
}

// allocationRequests are the shards that need a home. Each list has the shards of its stage in
// order, and may still contain shards that have reached another stage.
type allocationRequests struct {
	byShard   map[Shard]*allocationRequest
	waiting   []Shard
	unknown   []Shard
	postponed []Shard
	retryAt   time.Duration // time of the next attempt for postponed shards
}

// add adds a shard that needs a home. With asks, the node by gets a reply.
func (w *allocationRequests) add(s Shard, by identity.Node, asks, known bool) {
	at := w.byShard[s]
	if at == nil {
		at = &allocationRequest{first: by}
		w.byShard[s] = at
		w.enqueue(s, at, known)
	}
	if asks {
		at.requesters = with(at.requesters, by)
	}
}

func (w *allocationRequests) enqueue(s Shard, at *allocationRequest, known bool) {
	if known {
		at.stage = waiting
		w.waiting = append(w.waiting, s)
		return
	}
	at.stage = unknown
	w.unknown = append(w.unknown, s)
}

func (w *allocationRequests) take(s Shard) []identity.Node {
	at := w.byShard[s]
	if at == nil {
		return nil
	}
	delete(w.byShard, s)
	return at.requesters
}

func (w *allocationRequests) collect(list *[]Shard, of stage, most int) []Shard {
	var found []Shard
	i := 0
	for ; i < len(*list) && len(found) < most; i++ {
		if at := w.byShard[(*list)[i]]; at != nil && at.stage == of {
			at.stage = asked
			found = append(found, (*list)[i])
		}
	}
	*list = (*list)[i:]
	return found
}

func (w *allocationRequests) enqueueAll(shards []Shard) {
	for _, s := range shards {
		if at := w.byShard[s]; at != nil {
			w.enqueue(s, at, true)
		}
	}
}

// postpone delays shards for which no region was available.
func (w *allocationRequests) postpone(shards []Shard, until time.Duration) {
	for _, s := range shards {
		if at := w.byShard[s]; at != nil {
			at.stage = postponed
			w.postponed = append(w.postponed, s)
			w.retryAt = min(w.retryAt, until)
		}
	}
}

// strategyCall is the call of the strategy. At most one call runs at a time. The next call starts
// while the previous answer is being stored, because its view includes that answer.
type strategyCall struct {
	id      uint64 // 0 is none
	shards  []Shard
	decided []identity.Node // the homes of the last shards, for which the strategy is not called
}

// answered is the ID of a call whose answer is not decided yet. No call has this ID.
const answered = 1<<64 - 1

// rememberCall has the shards that are being remembered. The call is retried without a limit.
type rememberCall struct {
	id      uint64 // 0 is none
	shards  []Shard
	retryAt time.Duration
}

// hostCommand is a set of shards whose home has been sent Host.
type hostCommand struct {
	due    time.Duration
	node   identity.Node
	round  uint64
	shards []Shard
}

// probe finds the regions that respond, before shards are allocated. A stalled node becomes
// unreachable only after some seconds. If it has the fewest shards, it would get each new shard
// until then. The coordinator sends each region a Host without shards, and the region replies
// Hosted.
type probe struct {
	round   uint64          // 0: no probe is running
	waiting []identity.Node // regions that have not responded, sorted
	due     time.Duration   // end of the wait
}

// probed reports whether the probe of the view's regions has ended. It starts a probe if none is running.
func (m *Machine) probed(view *allocation.View) bool {
	if m.probe.round == 0 {
		m.startProbe(view)
	}
	return len(m.probe.waiting) == 0
}

// startProbe sends the probes. It does not wait for regions that did not respond to the last probe.
func (m *Machine) startProbe(view *allocation.View) {
	m.probe = probe{round: m.nextRound(), due: m.now + m.cfg.ProbeTimeout}
	clear(m.followed)
	m.silent = slices.DeleteFunc(m.silent, func(n identity.Node) bool {
		_, found := allocation.Find(view.Regions, n)
		return !found
	})
	for _, r := range view.Regions {
		if r.Node == m.cfg.Self && m.cfg.Standbys == 0 || has(view.Unreachable, r.Node) || !m.isRegistered(r.Node) { // an unregistered region has just sent its registration, which is being stored
			continue
		}
		if !has(m.silent, r.Node) {
			m.probe.waiting = with(m.probe.waiting, r.Node)
		}
		if m.instances[r.Node] != 0 { // a region without an instance was invited, and its registration is its response
			m.send(r.Node, Message{Kind: Host, Round: m.probe.round})
		}
	}
}

// regionResponded records that a region is alive. Any message proves that it is not stalled, but
// only the response to the running probe ends the wait for the region.
func (m *Machine) regionResponded(n identity.Node, msg *Message) {
	m.silent = without(m.silent, n)
	if msg.Kind == Register || msg.Kind == Hosted && msg.Round == m.probe.round {
		m.probe.waiting = without(m.probe.waiting, n)
		if msg.Followed != "" {
			m.followed[n] = msg.Followed
		}
	}
}

func (m *Machine) tickProbe() {
	if m.now < m.probe.due {
		return
	}
	for _, n := range m.probe.waiting {
		m.silent = with(m.silent, n)
		m.note(Note{Kind: Silent, Node: n})
	}
	m.probe.waiting = nil
}

// withoutSilent returns the view for an allocation, in which silent regions are unreachable.
func (m *Machine) withoutSilent(view allocation.View) allocation.View {
	m.probe = probe{}
	view.Unreachable = slices.Clone(view.Unreachable)
	for _, n := range m.silent {
		view.Unreachable = with(view.Unreachable, n)
	}
	return view
}
