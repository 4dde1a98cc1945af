// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/testkit/effort"
)

// walletProgram uses the copy of account.go as its own.
const walletProgram = `package main

import (
	"context"
	"fmt"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
	"github.com/refold-io/refold/examples/bank/rates"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/store"

	"example.com/wallets/wallet"
)

func main() {
	j, s := inmem.NewJournal(), inmem.NewSnapshotStore()
	for range 2 { // the second run finds the events
		if err := run(j, s); err != nil {
			fmt.Println(err)
		}
	}
}

func run(j *inmem.Journal, s *inmem.SnapshotStore) error {
	ctx := context.Background()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: store.Of(j, s)})
	if err != nil {
		return err
	}
	defer rt.Close(ctx)
	wallets, err := eventsourcing.Host(rt, wallet.WalletType(&rates.Table{}))
	if err != nil {
		return err
	}
	for _, id := range []string{"mine", "yours"} {
		if _, err := eventsourcing.Ask(ctx, wallets.Ref(id), wallet.Create{Currency: money.USD}); err != nil {
			return err
		}
	}
	if _, err := eventsourcing.Ask(ctx, wallets.Ref("mine"), wallet.TopUp{Amount: money.New(500, money.USD), Request: "r"}); err != nil {
		return err
	}
	_, err = eventsourcing.Ask(ctx, wallets.Ref("mine"), wallet.Transfer{Amount: money.New(200, money.USD), To: "yours", Request: "t"})
	if err != nil {
		return err
	}
	for {
		mine, err := eventsourcing.Ask(ctx, wallets.Ref("mine"), wallet.Lookup{})
		if err != nil {
			return err
		}
		yours, err := eventsourcing.Ask(ctx, wallets.Ref("yours"), wallet.Lookup{})
		if err != nil {
			return err
		}
		if len(mine.Pending) == 0 {
			fmt.Println(mine.Balance, "and", yours.Balance)
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}
`

// TestAccountCanBeCopied copies account.go to another module, renames its types, and runs a program
// with them.
func TestAccountCanBeCopied(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) string { return readFile(t, path) }
	code := read("account.go")
	for from, to := range map[string]string{
		`\bpackage main\b`: "package wallet", `\bAccount\b`: "Wallet", `\bAccountType\b`: "WalletType", `\bAccountTypeName\b`: "WalletTypeName",
		`\bCommand\b`: "Order", `\bOpen\b`: "Create", `\bOpened\b`: "Created", `\bDeposit\b`: "TopUp", `\bDeposited\b`: "ToppedUp",
		`"account"`: `"wallet"`,
	} {
		if !regexp.MustCompile(from).MatchString(code) {
			t.Errorf("account.go has no text that matches %s", from)
		}
		// Methods and functions of the framework keep their names.
		code = regexp.MustCompile(`(\beventsourcing\.|\.)?`+from).ReplaceAllStringFunc(code, func(s string) string {
			if strings.HasPrefix(s, "eventsourcing.") {
				return s
			}
			return regexp.MustCompile(from).ReplaceAllString(s, to)
		})
	}
	module := strings.Replace(read(filepath.Join(root, "go.mod")), "module github.com/refold-io/refold", "module example.com/wallets", 1)
	module += "\nrequire github.com/refold-io/refold v0.0.0\n\nreplace github.com/refold-io/refold => " + root + "\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": module, "go.sum": read(filepath.Join(root, "go.sum")), "main.go": walletProgram, "wallet/wallet.go": code,
	} {
		path := filepath.Join(dir, name)
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err = os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"run", "-mod=mod"}, raceFlag(), []string{"."})...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	if want := "3.00 USD and 2.00 USD\n3.00 USD and 2.00 USD\n"; err != nil || string(out) != want {
		t.Errorf("go run: error %v, output\n%s\nwant\n%s", err, out, want)
	}
}

// raceFlag returns the flag -race if this binary has the race detector. A program that a test
// builds then shares compiled packages with the test.
func raceFlag() []string {
	if effort.Race() {
		return []string{"-race"}
	}
	return nil
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The example imports only public packages.
func TestAccountImportsPublicPackages(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, ".")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(path, "github.com/refold-io/refold/") && strings.Contains(path, "/internal/") {
			t.Errorf("the example imports the internal package %s", path)
		}
	}
}
