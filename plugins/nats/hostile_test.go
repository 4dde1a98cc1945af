// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/transport"
)

const (
	hostileTimeout = time.Hour
	hostileBucket  = "refold_lease_test_3600000"
	hostileKeys    = "$KV." + hostileBucket + "."
	hostileStream  = "KV_" + hostileBucket
)

// broker is a server with the permissions of a cluster, two healthy nodes, an operator, and a
// stream of an application.
type broker struct {
	*testing.T

	server     *natstest.Server
	root       *natsgo.Conn // may use all subjects
	js         jetstream.JetStream
	alice, bob *transport.Transport
	atBob      *nats.Carrier
	heard      chan transport.Message // by bob
	ops        *nats.Operator
	leases     *nats.Leases // of alice
	revision   uint64       // of alice's lease
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// startBroker starts the server. The users mallory and spy have the permissions of a node and of an
// operator. The user reader has those of an operator that can only read.
func startBroker(t *testing.T) *broker {
	t.Helper()
	users := []natstest.User{{Name: "root"}}
	for _, name := range []string{"alice", "bob", "mallory"} {
		p, err := nats.NodePermissions("test", name)
		q, failed := nats.LeasePermissions("test", name, hostileTimeout)
		must(t, err, failed)
		users = append(users, natstest.User{Name: name, Permissions: p.And(q)})
	}
	for _, name := range []string{"ops", "spy", "reader"} {
		right := transport.AdminAct
		if name == "reader" {
			right = transport.AdminRead
		}
		p, err := nats.OperatorPermissions("test", name, right)
		must(t, err)
		if name == "ops" {
			p = p.And(nats.LeaseBucketPermissions("test", hostileTimeout))
		}
		users = append(users, natstest.User{Name: name, Permissions: p})
	}
	b := &broker{T: t, server: natstest.Start(t, natstest.Config{JetStream: true, Users: users}), heard: make(chan transport.Message, 100)}
	b.root, _ = b.connect("root")
	var err error
	b.js, err = jetstream.New(b.root)
	must(t, err)
	_, err = b.js.CreateStream(b.timeout(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	must(t, err, b.root.Publish("orders", []byte("order")))
	createBucket(t, nats.LeasesConfig{Access: b.server.Access(t, "ops"), Cluster: "test", Timeout: hostileTimeout})
	b.leases = openLeases(t, nats.LeasesConfig{Access: b.server.Access(t, "alice"), Cluster: "test", Name: "alice", Timeout: hostileTimeout})
	t.Cleanup(func() { must(t, b.leases.Close()) })
	b.revision, err = b.leases.Create(b.timeout(), "majority", "alice")
	must(t, err)
	b.alice = open(t, nats.Config{Access: b.server.Access(t, "alice"), Cluster: "test", Self: node("alice")}, transport.Config{})
	b.atBob = connect(t, nats.Config{Access: b.server.Access(t, "bob"), Cluster: "test", Self: node("bob")})
	b.bob, err = transport.Open(b.atBob, transport.Config{})
	must(t, err)
	t.Cleanup(func() { must(t, b.bob.Close()) })
	hear := func(_ context.Context, m transport.Message) { b.heard <- m }
	b.bob.Handle(kindEcho, hear)
	b.bob.HandleNamed(kindEcho, hear)
	must(t, b.bob.HandleAdmin(func(_ context.Context, operator, _ string, _ transport.AdminRight, request []byte) []byte {
		return []byte(operator + " " + string(request))
	}))
	b.ops = operator(t, nats.OperatorConfig{Access: b.server.Access(t, "ops"), Cluster: "test", Name: "ops"})
	t.Cleanup(func() { must(t, b.ops.Close()) })
	return b
}

// connect returns a client that may use the subjects of a user, and the number of its refused
// messages and subscriptions.
func (b *broker) connect(user string) (*natsgo.Conn, *atomic.Int64) {
	b.Helper()
	refused := new(atomic.Int64)
	nc, err := natsgo.Connect("nats://"+b.server.Addr(), natsgo.UserInfo(user, user), natsgo.Timeout(patience),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			if errors.Is(err, natsgo.ErrPermissionViolation) {
				refused.Add(1)
			}
		}))
	must(b.T, err)
	b.Cleanup(nc.Close)
	return nc, refused
}

func (b *broker) timeout() context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	b.Cleanup(cancel)
	return ctx
}

// wantHealthy checks that the nodes serve each other and the operator, that no node has received a
// forged message, and that the lease and the stream of the application exist.
func (b *broker) wantHealthy() {
	b.Helper()
	must(b.T, b.alice.Send(b.bob.Self(), transport.Data, kindEcho, []byte("hello")))
	select {
	case m := <-b.heard:
		if m.From != b.alice.Self() || string(m.Payload) != "hello" {
			b.Errorf("bob received %q from %v, want only the message of alice", m.Payload, m.From)
		}
	case <-b.timeout().Done():
		b.Fatal("bob received no message of alice")
	}
	if got, err := b.ops.Ask(b.timeout(), "cluster", transport.AdminRead, "bob", []byte("?")); string(got) != "ops ?" || err != nil {
		b.Errorf("Ask = %q, %v, want \"ops ?\"", got, err)
	}
	var err error
	if b.revision, err = b.leases.Renew(b.timeout(), "majority", "alice", b.revision); err != nil {
		b.Errorf("alice cannot renew her lease: %v", err)
	}
	orders, err := b.js.Stream(b.timeout(), "ORDERS")
	must(b.T, err)
	if s := orders.CachedInfo().State; s.Msgs != 1 || s.Consumers != 0 {
		b.Errorf("the stream of the application has %d messages and %d consumers, want 1 and 0", s.Msgs, s.Consumers)
	}
	names := b.js.StreamNames(b.timeout())
	var got []string
	for name := range names.Name() {
		got = append(got, name)
	}
	slices.Sort(got)
	if must(b.T, names.Err()); !slices.Equal(got, []string{hostileStream, "ORDERS"}) {
		b.Errorf("the account has the streams %v, want %s and ORDERS", got, hostileStream)
	}
	// OpenLeases compares the settings of the bucket.
	must(b.T, openLeases(b.T, nats.LeasesConfig{Access: b.server.Access(b.T, "bob"), Cluster: "test", Name: "bob", Timeout: hostileTimeout}).Close())
}

// forged returns a frame of alice to a node, or to a bare name.
func (b *broker) forged(to identity.Node) []byte {
	b.Helper()
	m, err := link.New(link.Config{Self: b.alice.Self(), MaxFrame: 1 << 20})
	must(b.T, err, m.Send(to, link.Control, link.Message{Type: link.Tell, Kind: link.Kind(kindEcho), Payload: []byte("forged")}))
	_, frame, _ := m.Flush(0, link.Control, nil)
	return slices.Clone(frame)
}

// targets are subjects to which neither the node mallory nor the operator spy may publish, with
// payloads that would be harmful there.
func (b *broker) targets() map[string][]byte {
	b.Helper()
	named := identity.Node{Name: "bob"}
	return map[string][]byte{
		fmt.Sprintf("refold.test.control.bob.%x.alice", b.bob.Self().UID): b.forged(b.bob.Self()),
		"refold.test.join.bob.alice":                                      b.forged(named),
		"refold.test.admin.read.cluster.bob.ops":                          []byte("forged"),
		"refold.test.admin.act.cluster.bob.ops":                           []byte("forged"),
		"refold.test.admin.act.cluster.@any.ops":                          []byte("forged"),
		"refold.test.inbox.lease.alice.x":                                 []byte("forged"),
		"$JS.API.STREAM.DELETE.ORDERS":                                    nil,
		"$JS.API.STREAM.PURGE.ORDERS":                                     nil,
		"$JS.API.STREAM.DELETE." + hostileStream:                          nil,
		"$JS.API.STREAM.PURGE." + hostileStream:                           nil,
		"$JS.API.STREAM.UPDATE." + hostileStream:                          []byte(`{"name":"` + hostileStream + `","subjects":["` + hostileKeys + `>","refold.>"]}`),
		"$JS.API.STREAM.CREATE.KV_refold_lease_test_1000":                 []byte(`{"name":"KV_refold_lease_test_1000","subjects":["refold.>"]}`),
		"$JS.API.DIRECT.GET." + hostileStream:                             []byte(`{"seq":1}`),
		"$JS.API.INFO":                                                    nil,

		fmt.Sprintf("refold.test.data.bob.%x.alice", b.bob.Self().UID): b.forged(b.bob.Self()),
		fmt.Sprintf("refold.test.bulk.bob.%x.alice", b.bob.Self().UID): b.forged(b.bob.Self()),
		"refold.test.join.alice.bob":                                   b.forged(named),
		"refold.other.join.bob.mallory":                                b.forged(named),
		"refold.test.admin.act.cluster.mallory.ops":                    []byte("forged"),
		"$JS.API.STREAM.LIST":                                          nil,
		"$JS.API.STREAM.NAMES":                                         nil,
		"$JS.API.STREAM.INFO.ORDERS":                                   nil,
		"$JS.API.STREAM.MSG.GET.ORDERS":                                []byte(`{"seq":1}`),
		"$JS.API.STREAM.MSG.DELETE.ORDERS":                             []byte(`{"seq":1}`),
		"$JS.API.STREAM.MSG.DELETE." + hostileStream:                   []byte(`{"seq":1}`),
		"$JS.API.STREAM.CREATE." + hostileStream:                       []byte(`{"name":"` + hostileStream + `","subjects":["refold.>"]}`),
		"$JS.API.STREAM.RESTORE." + hostileStream:                      []byte(`{"config":{"name":"` + hostileStream + `"}}`),
		"$JS.API.STREAM.SNAPSHOT." + hostileStream:                     []byte(`{"deliver_subject":"refold.test.join.bob.alice"}`),
		"$JS.API.STREAM.LEADER.STEPDOWN." + hostileStream:              nil,
		"$JS.API.STREAM.PEER.REMOVE." + hostileStream:                  []byte(`{"peer":"x"}`),
		"$JS.API.META.LEADER.STEPDOWN":                                 nil,
		"$JS.API.CONSUMER.CREATE." + hostileStream:                     []byte(`{"stream_name":"` + hostileStream + `","config":{"deliver_subject":"refold.test.join.bob.alice"}}`),
		"$JS.API.CONSUMER.CREATE.ORDERS.x":                             []byte(`{"stream_name":"ORDERS","config":{"name":"x"}}`),
		"$JS.API.CONSUMER.DURABLE.CREATE.ORDERS.x":                     []byte(`{"stream_name":"ORDERS","config":{"durable_name":"x"}}`),
		"$JS.API.CONSUMER.MSG.NEXT.ORDERS.x":                           nil,
		"$KV.refold_lease_test_1000.majority":                          []byte("mallory"),
		hostileKeys + "majority.x":                                     []byte("mallory"),
		"$SYS.REQ.ACCOUNT.PING.CONNZ":                                  nil,
		"_INBOX.x":                                                     []byte("forged"),
	}
}

// watch returns a function that returns all messages to some subjects since the call of watch.
func (b *broker) watch(subjects iter.Seq[string]) func() []*natsgo.Msg {
	b.Helper()
	var mu sync.Mutex
	var seen []*natsgo.Msg
	for subject := range subjects {
		_, err := b.root.Subscribe(subject, func(m *natsgo.Msg) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, m)
		})
		must(b.T, err)
	}
	must(b.T, b.root.FlushWithContext(b.timeout()))
	return func() []*natsgo.Msg {
		must(b.T, b.root.FlushWithContext(b.timeout()))
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func until(t *testing.T, subject string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !holds() {
		if ctx.Err() != nil {
			t.Fatalf("%s: timed out", subject)
		}
		runtime.Gosched()
	}
}

// A node sends messages to all subjects that it may use, with each target as the reply subject, and
// then publishes to the target. The server refuses each publish. JetStream sends its own replies to
// the targets, and never a payload of the node.
func TestHostileReplySubjects(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	mallory, refused := b.connect("mallory")
	for _, subject := range []string{"refold.test.control.mallory.1.*", "refold.test.join.mallory.*", "refold.test.inbox.lease.mallory.>"} {
		_, err := mallory.Subscribe(subject, func(*natsgo.Msg) {})
		must(t, err)
	}
	targets := b.targets()
	seen := b.watch(maps.Keys(targets))
	attempts := int64(0)
	for target, payload := range targets {
		for _, m := range []natsgo.Msg{
			{Subject: "refold.test.control.mallory.1.mallory"},
			{Subject: "refold.test.join.mallory.mallory"},
			{Subject: "refold.test.inbox.operator.ops.x"},
			{Subject: hostileKeys + "stored", Data: payload},
			{Subject: "$JS.API.STREAM.INFO." + hostileStream},
			{Subject: "$JS.API.STREAM.MSG.GET." + hostileStream, Data: []byte(`{"last_by_subj":"` + hostileKeys + `stored"}`)},
		} {
			m.Reply = target
			must(t, mallory.PublishMsg(&m), mallory.FlushWithContext(b.timeout()), mallory.Publish(target, payload))
			attempts++
		}
		must(t, mallory.PublishMsg(&natsgo.Msg{Subject: "$JS.API.DIRECT.GET." + hostileStream + "." + hostileKeys + "stored", Reply: target}))
		attempts++
	}
	must(t, mallory.FlushWithContext(b.timeout()))
	until(t, "refusal of each attempt", func() bool { return refused.Load() >= attempts })
	messages := seen()
	b.wantHealthy()
	for _, m := range messages {
		if len(m.Header) > 0 || !strings.HasPrefix(string(m.Data), `{"`) || bytes.Equal(m.Data, targets[m.Subject]) {
			t.Errorf("%s received %q with the header %v, want only replies of JetStream", m.Subject, m.Data, m.Header)
		}
	}
	until(t, "count of the replies of JetStream to bob", func() bool { return b.bob.Stats().Dropped[transport.Reason(link.Version)] > 0 })
	if got := refused.Load(); got != attempts {
		t.Errorf("the server refused %d messages, want %d", got, attempts)
	}
}

// The server refuses each message that a node or an operator publishes to a subject of another
// user, a wildcard, an application, or JetStream.
func TestHostilePublishers(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	targets := b.targets()
	seen := b.watch(maps.Keys(targets))
	forged, uid := b.forged(b.bob.Self()), fmt.Sprintf("%x", b.bob.Self().UID)
	for _, s := range []string{
		">", "*", "refold.>", "refold.test.>", "refold.test.control.bob." + uid + ".>", "refold.test.control.bob." + uid + ".*", "refold.test.control.bob." + uid,
		"refold.test.*.bob." + uid + ".alice", "refold.*.control.bob." + uid + ".mallory", "refold.test.join.bob.>", "refold.test.join.*.*",
		"refold.test.join.bob.mallory.alice", "refold.test.join.bob.spy", "refold.test.admin.act.cluster.bob.*", "refold.test.admin.act.*.bob.*", "refold.test.admin.*.*.*.*", "refold.test.admin.>", "refold.test.admin.act.cluster.bob.mallory", "refold.test.admin.own.cluster.bob.spy", "refold.test.admin.read.inspect.bob.spy", "refold.test.admin.bob.spy",
		"refold.test.inbox.lease.bob.>", "refold.test.inbox.operator", "refold.other.inbox.operator.ops.x", "orders", "$JS.API.>", "$KV.>", "_R_.x", "$JS.ACK.ORDERS.x", "$SYS.>",
	} {
		targets[s] = forged
	}
	for user, more := range map[string][]string{
		"mallory": {"refold.test.admin.read.cluster.bob.spy", "refold.test.admin.act.cluster.bob.spy"},
		"reader":  {"refold.test.admin.act.cluster.bob.reader", "refold.test.admin.act.cluster.@any.reader", "refold.test.admin.read.cluster.bob.spy"},
		"spy": {
			"refold.test.control.bob." + uid + ".spy", "refold.test.inbox.operator.ops.x", "refold.test.inbox.operator.spy.x", hostileKeys + "majority",
			"$JS.API.STREAM.INFO." + hostileStream, "$JS.API.STREAM.MSG.GET." + hostileStream,
		},
	} {
		nc, refused := b.connect(user)
		all := slices.Concat(slices.Collect(maps.Keys(targets)), more)
		for _, subject := range all {
			must(t, nc.Publish(subject, targets[subject]))
		}
		must(t, nc.FlushWithContext(b.timeout()))
		until(t, "refusal of each message of "+user, func() bool { return refused.Load() >= int64(len(all)) })
		if got := refused.Load(); got != int64(len(all)) {
			t.Errorf("the server refused %d messages of %s, want %d", got, user, len(all))
		}
	}
	for _, m := range seen() {
		t.Errorf("%s received %q", m.Subject, m.Data)
	}
	b.wantHealthy()
}

// The server refuses each subscription of a node or an operator to the messages of others.
func TestHostileSubscriptions(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	subjects := []string{
		">", "*.>", "refold.>", "refold.test.>", "refold.test.*.bob.>", "refold.test.control.bob.*.*", "refold.test.data.*.*.*", "refold.test.bulk.bob.*.alice", "refold.test.join.bob.*",
		"refold.test.join.*.*", "refold.*.join.mallory.*", "refold.test.admin.*.*.bob.*", "refold.test.admin.act.cluster.bob.*", "refold.test.admin.act.*.bob.*", "refold.test.admin.*.*.*.*", "refold.test.admin.>", "refold.other.admin.*.*.@any.*",
		"refold.test.inbox.>", "refold.test.inbox.operator.>", "refold.test.inbox.operator.ops.>", "refold.test.inbox.operator.mallory.>", "refold.test.inbox.lease.alice.>",
		"refold.test.inbox.lease.*.>", "orders", "_INBOX.>", "_R_.>", "$JS.>", "$JS.API.>", "$JS.EVENT.ADVISORY.>", "$JS.ACK.>", "$KV.>", hostileKeys + ">", "$SYS.>",
	}
	for _, user := range []string{"mallory", "spy"} {
		nc, refused := b.connect(user)
		for _, subject := range subjects {
			hear := func(m *natsgo.Msg) { t.Errorf("%s received %q on %s", user, m.Data, m.Subject) }
			_, err := nc.Subscribe(subject, hear)
			_, failed := nc.QueueSubscribe(subject, "refold", hear)
			must(t, err, failed)
		}
		attempts := 2 * len(subjects)
		for _, subject := range []string{"refold.test.admin.*.*.@any.*", "refold.test.admin.act.*.@any.*", "refold.test.admin.*.*.mallory.*"} {
			_, err := nc.SubscribeSync(subject) // outside of the queue group, it would copy the requests to other nodes
			_, failed := nc.QueueSubscribeSync(subject, "own")
			must(t, err, failed)
			attempts += 2
		}
		until(t, "refusal of each subscription of "+user, func() bool { return refused.Load() >= int64(attempts) })
	}
	b.wantHealthy()
}

// A node replies to an operator only in the inbox of this operator.
func TestHostileOperator(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	spy, refused := b.connect("spy")
	replies := slices.Collect(maps.Keys(b.targets()))
	replies = append(replies, "refold.test.inbox.operator.ops.x", "refold.test.inbox.operator.spy", "refold.test.inbox.operator.spy2.x",
		"refold.test.inbox.operator.*.x", "refold.test.inbox.operator.>", "refold.other.inbox.operator.spy.x", hostileKeys+"majority", "")
	seen := b.watch(slices.Values(slices.DeleteFunc(slices.Clone(replies), func(s string) bool { return s == "" || strings.ContainsAny(s, "*>") })))
	for _, reply := range replies {
		for _, subject := range []string{"refold.test.admin.read.cluster.bob.spy", "refold.test.admin.act.cluster.@any.spy"} {
			must(t, spy.PublishMsg(&natsgo.Msg{Subject: subject, Reply: reply, Data: []byte("?")}))
		}
	}
	o := operator(t, nats.OperatorConfig{Access: b.server.Access(t, "spy"), Cluster: "test", Name: "spy"})
	defer func() { must(t, o.Close()) }()
	must(t, spy.FlushWithContext(b.timeout()))
	until(t, "count of each request", func() bool { return b.atBob.Stats().Misdirected >= uint64(2*len(replies)) })
	if got, err := o.Ask(b.timeout(), "cluster", transport.AdminRead, "bob", []byte("?")); string(got) != "spy ?" || err != nil {
		t.Errorf("Ask = %q, %v, want \"spy ?\"", got, err)
	}
	messages := seen()
	b.wantHealthy()
	for _, m := range messages {
		t.Errorf("%s received %q", m.Subject, m.Data)
	}
	if n := b.atBob.Stats(); n.Misdirected != uint64(2*len(replies)) || n.Refused != 0 || refused.Load() != 0 {
		t.Errorf("bob counted %+v and the server refused %d messages of the operator, want %d misdirected requests only", n, refused.Load(), 2*len(replies))
	}
}

// An operator with the right to read cannot act. The refusal of an action does not end a read of the
// same client.
func TestReadOnlyOperator(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	reads, release := make(chan struct{}, 1), make(chan struct{})
	must(t, b.bob.HandleAdmin(func(_ context.Context, _, _ string, right transport.AdminRight, _ []byte) []byte {
		if right != transport.AdminRead {
			t.Errorf("bob received a request with the right to %v", right)
		}
		reads <- struct{}{}
		<-release
		return []byte("done")
	}))
	reader := operator(t, nats.OperatorConfig{Access: b.server.Access(t, "reader"), Cluster: "test", Name: "reader"})
	defer func() { must(t, reader.Close()) }()
	read := make(chan error, 1)
	go func() {
		_, err := reader.Ask(b.timeout(), "cluster", transport.AdminRead, "bob", nil)
		read <- err
	}()
	<-reads
	for _, to := range []string{"bob", ""} {
		if _, err := reader.Ask(b.timeout(), "cluster", transport.AdminAct, to, nil); !errors.Is(err, transport.ErrDenied) || !errors.Is(err, natsgo.ErrPermissionViolation) {
			t.Errorf("Ask(%q) with the right to act: %v, want ErrDenied", to, err)
		}
	}
	close(release)
	if err := <-read; err != nil {
		t.Errorf("a read during refused actions: %v, want no error", err)
	}
}
