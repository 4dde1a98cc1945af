// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package console is a console in the browser for operators of a program: its entities, shards,
// nodes and projections.
//
// A Console is an http.Handler. It sends the same requests as the command refold, through a
// transport.AdminClient, and needs no other access to the nodes:
//
//	c, err := console.New(console.Options{Admin: operator, Prefix: "/console/", AllowActions: true})
//	mux.Handle("/console/", c)
//	log.Info("console", "url", c.LoginURL("http://127.0.0.1:8080"))
//
// # Access
//
// A Console admits a browser in one of three ways. Without further options, a browser signs in with
// a one-time token: LoginURL returns an address that contains it. With Options.PasswordFile, a
// browser signs in with a name and a password. With Options.Authorize, the program decides about
// each request, for example because a middleware has authenticated it.
//
// A session reads or acts. Actions need Options.AllowActions, a session that may act, a request from
// a page of the console itself, and the right to act on the nodes. Each action is confirmed on a
// page that names its target, and logged with the user.
//
// # Guarantees
//
//   - Tokens and passwords are accepted over TLS, or from the machine itself. Requests to a host that
//     Options.Hosts does not list are refused, so that a foreign page cannot reach a console by a name
//     that it controls.
//   - Pages contain no inline script and no inline style. The Content-Security-Policy forbids both.
//     All assets are part of the program.
//   - Names and payloads are data: pages show them as text.
//   - All browsers share one poller. It asks the nodes every Options.Interval while a browser has a
//     page open, and not otherwise.
//
// # Caveats
//
// Sessions are kept in memory and end with the Console. Each page works without JavaScript, but does
// not update then.
package console
