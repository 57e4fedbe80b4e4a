//go:build tools

// Package dns pins CoreDNS, in a module of its own: it wants other versions of the Kubernetes libraries
// than Kubernetes itself does, and one module can have only one.
package dns

import _ "github.com/coredns/coredns"
