// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/internal/inspect"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

type clusterFlags struct {
	Cluster  string        `help:"The name of the cluster. Required to query its nodes." env:"REFOLD_CLUSTER" placeholder:"NAME"`
	Operator string        `help:"Your name, as the NATS servers authenticate it." default:"operator" placeholder:"NAME"`
	Timeout  time.Duration `help:"Maximum time for each response." default:"10s"`

	NATS           []string `name:"nats" help:"The NATS servers." default:"nats://127.0.0.1:4222" env:"REFOLD_NATS" placeholder:"URL"`
	TokenFile      string   `help:"File with a token, or with user:password." env:"REFOLD_NATS_TOKEN_FILE" placeholder:"FILE"`
	Credentials    string   `help:"Credentials file, as created by nsc." env:"REFOLD_NATS_CREDENTIALS" placeholder:"FILE"`
	NKeyFile       string   `name:"nkey-file" help:"File with the seed of an nkey." placeholder:"FILE"`
	CA             string   `name:"ca" help:"File with the CA certificates for the servers' certificates." placeholder:"FILE"`
	Cert           string   `help:"File with the client certificate." placeholder:"FILE"`
	Key            string   `help:"File with the key of the client certificate." placeholder:"FILE"`
	ServerName     string   `help:"The name in the server's certificate. Defaults to the host of the URL." placeholder:"NAME"`
	AllowPlaintext bool     `help:"Allow connections to other machines without TLS."`
}

func (f *clusterFlags) Validate() error {
	if f.Timeout <= 0 {
		return fmt.Errorf("--timeout is %v, must be greater than 0", f.Timeout)
	}
	return nil
}

func (f *clusterFlags) named() error {
	if f.Cluster == "" {
		return errors.New("--cluster is missing: it names the cluster to query")
	}
	return nil
}

type nodes struct {
	members *cluster.Admin
	data    *ddata.Admin
	shards  *sharding.Admin
	inspect *inspect.Client
}

func (f *clusterFlags) with(do func(n *nodes) error) (err error) {
	if err = f.named(); err != nil {
		return err
	}
	op, err := nats.ConnectOperator(nats.OperatorConfig{Cluster: f.Cluster, Name: f.Operator, Access: f.access()})
	if err != nil {
		return hint(err)
	}
	defer func() { err = errors.Join(err, op.Close()) }()
	return do(newNodes(patient{op, f.Timeout}))
}

func (f *clusterFlags) access() nats.Access {
	return nats.Access{
		URLs: f.NATS, AllowPlaintext: f.AllowPlaintext, CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: f.ServerName,
		CredentialsFile: f.Credentials, NKeyFile: f.NKeyFile, TokenFile: f.TokenFile, ConnectTimeout: max(f.Timeout/2, 2*time.Second),
	}
}

func newNodes(asker transport.AdminClient) *nodes {
	return &nodes{cluster.NewAdmin(asker), ddata.NewAdmin(asker), sharding.NewAdmin(asker), inspect.NewClient(asker)}
}

// hint adds the names of the credential flags to an authentication error.
func hint(err error) error {
	if strings.Contains(strings.ToLower(err.Error()), "authorization") {
		return fmt.Errorf("%w (credentials: --token-file, --credentials, --nkey-file or --cert)", err)
	}
	return err
}

// patient is a client with a time-out for each request.
type patient struct {
	transport.AdminClient

	timeout time.Duration
}

func (p patient) Ask(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.AdminClient.Ask(ctx, service, right, node, request)
}

// present returns the names of the members that may host entities. leaves is true for those that
// are leaving.
func (n *nodes) present(ctx context.Context, ask string) (names []string, leaves map[string]bool, err error) {
	s, err := n.members.State(ctx, ask)
	if err != nil {
		return nil, nil, err
	}
	names, leaves = presentIn(s)
	return names, leaves, nil
}

func presentIn(s *cluster.Summary) (names []string, leaves map[string]bool) {
	leaves = map[string]bool{}
	for i := range s.Members {
		if m := &s.Members[i]; inspect.Answers(m.Status) {
			name, _, _ := strings.Cut(m.Node, "#")
			names = append(names, name)
			leaves[name] = inspect.Leaves(m.Status)
		}
	}
	return names, leaves
}
