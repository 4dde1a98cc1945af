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

// Config is the configuration of a server.
type Config struct {
	// Users are the users that may connect.
	Users []User
	// JetStream enables JetStream, for leases on a single server.
	JetStream bool
	// Routes are the addresses (host and port) of servers to connect to.
	Routes []string
}

// User is a user of a server.
type User struct {
	// Name is the user's name for this package, usually the name of its node.
	Name string
	// Permissions are the user's permissions. The zero value allows everything.
	Permissions nats.Permissions
	// Deny are exceptions from Permissions: subjects that the server denies although Permissions
	// allow them. A denied publish is an error. Messages on a denied part of a subscription are not
	// delivered.
	Deny nats.Permissions

	password string
}

func (c Config) text(name, dir string, clientPort, routePort int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("server_name: %q", name)
	line(`host: "127.0.0.1"`)
	line("port: %d", clientPort)
	if c.JetStream {
		line("jetstream { store_dir: %q }", dir)
	} else { // no JetStream with routes, because JetStream would need a cluster of three servers
		c.cluster(line, routePort)
	}
	line("authorization { timeout: 120, users: [") // seconds, for a client on a busy machine
	for _, u := range c.Users {
		line("  { user: %q, password: %q, permissions: {", login(u.Name), cmp.Or(u.password, login(u.Name)))
		u.side(line, "publish", u.Permissions.Publish, u.Deny.Publish)
		u.side(line, "subscribe", u.Permissions.Subscribe, u.Deny.Subscribe)
		line("  } }")
	}
	line("] }")
	return b.String()
}

func (c Config) cluster(line func(string, ...any), port int) {
	line("cluster {")
	line("  name: natstest")
	line(`  host: "127.0.0.1"`)
	line("  port: %d", port)
	line("  no_advertise: true") // clients must not bypass a proxy
	line("  pool_size: -1")      // one route, so that one fault breaks the connection between the servers
	line(`  ping_interval: "3h"`)
	line("  connect_retries: 1000000")
	line("  routes: [ %s ]", quoted(c.Routes, "nats-route://"))
	line("}")
}

func (u User) side(line func(string, ...any), subject string, allow, deny []string) {
	if p := u.Permissions; len(p.Publish) == 0 && len(p.Subscribe) == 0 {
		allow = []string{">"}
	}
	line("    %s: { allow: [ %s ], deny: [ %s ] }", subject, quoted(allow, ""), quoted(deny, ""))
}

// login returns the string that is both the name and the password of a user. Unlike the name of a
// node, it has no colon.
func login(name string) string { return strings.ReplaceAll(name, ":", "_") }

func quoted(all []string, prefix string) string {
	each := make([]string, len(all))
	for i, s := range all {
		each[i] = strconv.Quote(prefix + s)
	}
	return strings.Join(each, ", ")
}

// Nodes returns one user per node of a cluster, with the name and the permissions of the node.
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
