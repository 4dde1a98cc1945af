// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refold-io/refold/plugins/nats"
)

// Config says what a server is like.
type Config struct {
	// Users are those whom it lets in.
	Users []User
	// JetStream turns it on, for leases. It is for one server by itself.
	JetStream bool
	// Routes are the addresses, host and port, of other servers that it makes
	// routes to.
	Routes []string
}

// User is who may connect.
type User struct {
	// Name is who it is to this package: best the name of its node.
	Name string
	// Permissions are what it may do. The zero value is everything.
	Permissions nats.Permissions
	// Deny is what it may not do all the same. What is denied by Publish is refused
	// loudly; what is denied by a part of the subjects it listens to is just not
	// delivered.
	Deny nats.Permissions

	password string
}

// text returns a configuration file for a server.
func (c Config) text(name, dir string, clientPort, routePort int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("server_name: %q", name)
	line(`host: "127.0.0.1"`)
	line("port: %d", clientPort)
	if c.JetStream {
		line("jetstream { store_dir: %q }", dir)
	}
	if !c.JetStream { // which would want a cluster of three
		c.cluster(line, routePort)
	}
	line("authorization { timeout: 120, users: [") // of a client that is short of time
	for _, u := range c.Users {
		line("  { user: %q, password: %q, permissions: {", login(u.Name), cmp.Or(u.password, login(u.Name)))
		u.side(line, "publish", u.Permissions.Publish, u.Deny.Publish)
		u.side(line, "subscribe", u.Permissions.Subscribe, u.Deny.Subscribe)
		if u.Permissions.Responses {
			line("    allow_responses: true")
		}
		line("  } }")
	}
	line("] }")
	return b.String()
}

func (c Config) cluster(line func(string, ...any), port int) {
	line("cluster {")
	line("  name: testnats")
	line(`  host: "127.0.0.1"`)
	line("  port: %d", port)
	line("  no_advertise: true") // nothing goes round a proxy
	line("  pool_size: -1")      // one route, so that one fault breaks it
	line(`  ping_interval: "3h"`)
	line("  connect_retries: 1000000")
	line("  routes: [ %s ]", quoted(c.Routes, "nats-route://"))
	line("}")
}

func (u User) side(line func(string, ...any), what string, allow, deny []string) {
	if u.everything() {
		allow = []string{">"}
	}
	line("    %s: { allow: [ %s ], deny: [ %s ] }", what, quoted(allow, ""), quoted(deny, ""))
}

// login returns the user's name and password, which in a file can't have a colon as
// names of nodes do.
func login(name string) string { return strings.ReplaceAll(name, ":", "_") }

func (u User) everything() bool {
	return len(u.Permissions.Publish) == 0 && len(u.Permissions.Subscribe) == 0 && !u.Permissions.Responses
}

func quoted(all []string, prefix string) string {
	each := make([]string, len(all))
	for i, s := range all {
		each[i] = strconv.Quote(prefix + s)
	}
	return strings.Join(each, ", ")
}

// Nodes returns users with the rights of nodes of a cluster, whose names are theirs.
func Nodes(cluster string, names ...string) ([]User, error) {
	users := make([]User, len(names))
	for i, name := range names {
		p, err := nats.NodePermissions(cluster, name)
		if err != nil {
			return nil, err
		}
		users[i] = User{Name: name, Permissions: p}
	}
	return users, nil
}

// clone returns a config that shares no users.
func (c Config) clone() Config {
	c.Users, c.Routes = slices.Clone(c.Users), slices.Clone(c.Routes)
	return c
}
