// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/transport"
)

// user returns a user with permissions, whose password is "secret-" and the name.
func user(name string, p nats.Permissions) *server.User {
	allow := &server.Permissions{
		Publish: &server.SubjectPermission{Allow: p.Publish}, Subscribe: &server.SubjectPermission{Allow: p.Subscribe},
	}
	return &server.User{Username: name, Password: "secret-" + name, Permissions: allow}
}

func operators(t *testing.T, name string) *server.User {
	t.Helper()
	p, err := nats.OperatorPermissions("test", name, transport.AdminAct)
	if err != nil {
		t.Fatal(err)
	}
	return user(name, p)
}

// withUsers starts a server that accepts only the given users. The returned function returns the
// access of a user.
func withUsers(t *testing.T, users ...*server.User) func(user string) nats.Access {
	t.Helper()
	s := start(t, embedded.Config{Configure: func(o *server.Options) {
		o.Authorization = ""
		o.Users = users
	}})
	return func(user string) nats.Access {
		return nats.Access{URLs: []string{s.URL()}, TokenFile: write(t, "token", user+":secret-"+user), ConnectTimeout: patience}
	}
}

// The permissions of a node and of an operator are sufficient for requests. An operator cannot
// publish as another operator or as a node.
func TestOperatorPermissions(t *testing.T) {
	t.Parallel()
	access := withUsers(t, allowed(t, "bob"), operators(t, "ops.example"), operators(t, "mallory"))
	bob := open(t, nats.Config{Access: access("bob"), Cluster: "test", Self: node("bob")}, transport.Config{})
	var mu sync.Mutex
	asked := map[string]int{} // a slow request to any node is repeated, so a node may receive it twice
	if err := bob.HandleAdmin(func(_ context.Context, operator, _ string, _ transport.AdminRight, request []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		asked[operator+string(request)]++
		return []byte(strings.Repeat("x", 1<<20))
	}); err != nil {
		t.Fatal(err)
	}
	ops := operator(t, nats.OperatorConfig{Access: access("ops.example"), Cluster: "test", Name: "ops.example"})
	defer func() { _ = ops.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, to := range []string{"bob", "", "bob", ""} {
		if got, err := ops.Ask(ctx, "cluster", transport.AdminRead, to, []byte("?")); len(got) != 1<<20 || err != nil {
			t.Errorf("Ask(%q) returned %d bytes, %v, want 1 MiB", to, len(got), err)
		}
	}

	impostor := operator(t, nats.OperatorConfig{Access: access("mallory"), Cluster: "test", Name: "ops.example"})
	defer func() { _ = impostor.Close() }()
	for _, to := range []string{"bob", ""} {
		if _, err := impostor.Ask(ctx, "cluster", transport.AdminRead, to, []byte("!")); !errors.Is(err, natsgo.ErrPermissionViolation) {
			t.Errorf("Ask(%q) with the name of another operator: %v, want ErrPermissionViolation", to, err)
		}
	}
	mallory := operator(t, nats.OperatorConfig{Access: access("mallory"), Cluster: "other", Name: "mallory"})
	defer func() { _ = mallory.Close() }()
	if _, err := mallory.Ask(ctx, "cluster", transport.AdminRead, "bob", nil); !errors.Is(err, natsgo.ErrPermissionViolation) {
		t.Errorf("Ask in another cluster: %v, want ErrPermissionViolation", err)
	}
	carrier := connect(t, nats.Config{Access: access("mallory"), Cluster: "test", Self: node("mallory")})
	refused, err := transport.Open(carrier, transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for connected := refused.Connected(); !errors.Is(connected, natsgo.ErrPermissionViolation); connected = refused.Connected() {
		if !errors.Is(connected, transport.ErrDisconnected) {
			t.Fatalf("Connected of a node that may not subscribe: %v, want ErrDisconnected", connected)
		}
		runtime.Gosched() // the carrier reconnects after a while, and the server reports the refusals again
	}
	for carrier.Stats().Refused < 4 { // one for each subscription of a node
		if t.Context().Err() != nil {
			t.Fatal("the server accepted subscriptions of a node from an operator")
		}
		runtime.Gosched()
	}
	if err := refused.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if asked["ops.example?"] < 4 || len(asked) != 1 {
		t.Errorf("the nodes received the requests %v, want at least 4 from ops.example only", asked)
	}
}

// Only the node or operator that sent a request may subscribe to its replies.
func TestInboxPermissions(t *testing.T) {
	t.Parallel()
	lease, err := nats.LeasePermissions("test", "bob", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	bob, ops := allowed(t, "bob"), operators(t, "ops")
	bob.Permissions.Subscribe.Allow = append(bob.Permissions.Subscribe.Allow, lease.Subscribe...)
	access := withUsers(t, bob, ops)
	for user, subjects := range map[string][]string{
		"bob": {"_INBOX.>", "refold.test.inbox.>", "refold.test.inbox.operator.ops.>", "refold.test.inbox.lease.alice.>", "refold.test.inbox.lease.*.>"},
		"ops": {"_INBOX.>", "refold.test.inbox.>", "refold.test.inbox.operator.>", "refold.test.inbox.lease.bob.>", "refold.test.admin.*.*.bob.*"},
	} {
		refused := make(chan string, 10)
		nc, err := natsgo.Connect(access(user).URLs[0], natsgo.UserInfo(user, "secret-"+user), natsgo.Timeout(patience),
			natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { refused <- err.Error() }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for _, subject := range subjects {
			if _, err := nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-refused:
				if !strings.Contains(got, strconv.Quote(subject)) {
					t.Errorf("subscription to %s: the server reported %q", subject, got)
				}
			case <-time.After(patience):
				t.Fatalf("the server let %s subscribe to %s", user, subject)
			}
		}
	}
}

func TestConnectOperatorErrors(t *testing.T) {
	t.Parallel()
	_, err := nats.ConnectOperator(nats.OperatorConfig{Cluster: "a.b", Name: "*"})
	for _, field := range []string{"URLs", "Cluster", "Name"} {
		if !errors.Is(err, nats.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("the error does not name %s: %v, want ErrInvalid", field, err)
		}
	}
	nowhere := nats.Access{URLs: []string{"nats://127.0.0.1:1"}}
	if _, err = nats.ConnectOperator(nats.OperatorConfig{Access: nowhere, Cluster: "c", Name: "ops"}); !errors.Is(err, natsgo.ErrNoServers) || !strings.Contains(err.Error(), nowhere.URLs[0]) {
		t.Errorf("ConnectOperator without a server: %v, want ErrNoServers", err)
	}
	access := withUsers(t, operators(t, "ops"))("ops")
	access.TokenFile = write(t, "token", "ops:hunter2")
	_, err = nats.ConnectOperator(nats.OperatorConfig{Access: access, Cluster: "c", Name: "ops"})
	if !errors.Is(err, natsgo.ErrAuthorization) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), access.URLs[0]+" refuses TokenFile "+access.TokenFile) {
		t.Errorf("ConnectOperator with a wrong password: %v, want ErrAuthorization", err)
	}
	access.TokenFile = ""
	_, err = nats.ConnectOperator(nats.OperatorConfig{Access: access, Cluster: "c", Name: "ops"})
	if !errors.Is(err, natsgo.ErrAuthorization) || !strings.Contains(err.Error(), "refuses a client without CredentialsFile") {
		t.Errorf("ConnectOperator without a password: %v, want ErrAuthorization", err)
	}
	if _, err := nats.OperatorPermissions("a.b", "ops", transport.AdminAct); !errors.Is(err, nats.ErrInvalid) {
		t.Errorf("OperatorPermissions with an invalid cluster: %v, want ErrInvalid", err)
	}
	if _, err := nats.OperatorPermissions("a", ">", transport.AdminAct); !errors.Is(err, nats.ErrInvalid) {
		t.Errorf("OperatorPermissions with an invalid name: %v, want ErrInvalid", err)
	}
	ops := operator(t, nats.OperatorConfig{Access: accessTo(start(t, embedded.Config{})), Cluster: "c", Name: "ops"})
	if _, err := ops.Ask(t.Context(), "cluster", transport.AdminRead, "a.*", nil); !errors.Is(err, nats.ErrInvalid) {
		t.Errorf("Ask of an invalid name: %v, want ErrInvalid", err)
	}
	if err := errors.Join(ops.Close(), ops.Close()); err != nil {
		t.Error(err)
	}
	if _, err := ops.Ask(t.Context(), "cluster", transport.AdminRead, "a", nil); !errors.Is(err, natsgo.ErrConnectionClosed) {
		t.Errorf("Ask after Close: %v, want ErrConnectionClosed", err)
	}
}

// While the server is unavailable, the error reports the missing connection, not a full buffer.
func TestAskWithoutServer(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	ops := operator(t, nats.OperatorConfig{Access: accessTo(s), Cluster: "test", Name: "ops"})
	defer func() { _ = ops.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := ops.Ask(ctx, "cluster", transport.AdminRead, "", nil); !errors.Is(err, transport.ErrNoNode) {
		t.Errorf("Ask without nodes: %v, want ErrNoNode", err)
	}
	url := s.URL()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := ops.Ask(t.Context(), "cluster", transport.AdminRead, "", nil)
		if errors.Is(err, transport.ErrDisconnected) {
			if text := err.Error(); !strings.Contains(text, "not connected to "+url) || strings.Contains(text, "buffer") {
				t.Errorf("Ask without a server: %s, want a text about the connection to %s", text, url)
			}
			break
		}
		if t.Context().Err() != nil || strings.Contains(err.Error(), "buffer") {
			t.Fatal(err)
		}
		runtime.Gosched() // the client detects the loss of the server soon
	}
}

// If a request is for any node and the first node does not reply, another node receives the
// request.
func TestAskAnyNodeTwice(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	paused := connect(t, config(s, "paused"))
	if err := paused.Start(discardReceiver{}); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 100)
	if err := paused.ServeAdmin(func(transport.AdminRequest) { asked <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := paused.ServeAdmin(func(transport.AdminRequest) {}); err == nil {
		t.Error("ServeAdmin succeeded twice")
	}
	ops := operator(t, nats.OperatorConfig{Access: accessTo(s), Cluster: "test", Name: "ops"})
	defer func() { _ = ops.Close() }()
	answered := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		got, err := ops.Ask(ctx, "cluster", transport.AdminRead, "", nil)
		if string(got) != "well" {
			err = errors.Join(err, errors.New("wrong answer"))
		}
		answered <- err
	}()
	<-asked
	awake := open(t, config(s, "awake"), transport.Config{})
	if err := awake.HandleAdmin(func(context.Context, string, string, transport.AdminRight, []byte) []byte { return []byte("well") }); err != nil {
		t.Fatal(err)
	}
	if err := paused.Close(); err != nil { // an open carrier would probably receive the request again
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := paused.ServeAdmin(func(transport.AdminRequest) {}); !errors.Is(err, nats.ErrClosed) {
		t.Errorf("ServeAdmin after Close: %v, want ErrClosed", err)
	}
}
