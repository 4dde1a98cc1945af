// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package adminrpc is the request and reply protocol between operators and nodes: JSON objects over
// transport.AdminClient, with errors, paging and service names. Packages cluster, ddata and
// sharding each have one service.
//
// A request is a JSON object with the name of its service in the field "service"; requests without
// one are for package cluster. A reply is a JSON object that embeds a Head.
package adminrpc
