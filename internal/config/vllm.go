// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VLLM makes a gateway the front door of vLLM workers. Its flags are those of vLLM's own EPD proxy.
type VLLM struct {
	EncodeServersURLs   []string `toml:"encode_servers_urls" key:"vllm.encode_servers_urls" name:"encode-servers-urls" placeholder:"URL" help:"vLLM Encoders, e.g. http://e1:8001,http://e2:8001."`
	PrefillServersURLs  []string `toml:"prefill_servers_urls" key:"vllm.prefill_servers_urls" name:"prefill-servers-urls" placeholder:"URL" help:"vLLM prefill workers, for fleets with prefill and decode apart. Empty, none or disable: decode workers prefill too."`
	DecodeServersURLs   []string `toml:"decode_servers_urls" key:"vllm.decode_servers_urls" name:"decode-servers-urls" placeholder:"URL" help:"vLLM workers that decode."`
	DynamicRegistration bool     `toml:"dynamic_registration" key:"vllm.dynamic_registration" name:"dynamic-registration" help:"Let workers register with POST /instances, with the key in the environment variable ADMIN_API_KEY."`

	ECConsumerZMQAddrs []string `toml:"ec_consumer_zmq_addrs" key:"vllm.ec_consumer_zmq_addrs" name:"ec-consumer-zmq-addrs" placeholder:"ADDR" help:"Control addresses that vLLM Encoders push to, one per decode worker and data-parallel replica: s0r0,s0r1,s1r0,s1r1. Not with prefill apart."`
	ECConsumerDPSize   int      `toml:"ec_consumer_dp_size" key:"vllm.ec_consumer_dp_size" name:"ec-consumer-dp-size" placeholder:"N" help:"Data-parallel replicas of each decode worker. A request is tied to one of them."`

	DecodeRetries int  `toml:"decode_retries" key:"vllm.decode_retries" name:"decode-retries" placeholder:"N" help:"How often a request is encoded and sent again when decode answers 500, as it does when an embedding was not delivered."`
	NoRewrite     bool `toml:"no_rewrite" key:"vllm.no_rewrite" name:"no-rewrite" help:"Send images to decode workers as they are, to tell what rewriting is worth."`

	ProbeInterval Seconds `toml:"probe_interval" key:"vllm.probe_interval" name:"probe-interval" placeholder:"TIME" help:"Time between two questions for the health of each vLLM worker; a plain number is seconds. 0s asks none."`
	ProbeTimeout  Seconds `toml:"probe_timeout" key:"vllm.probe_timeout" name:"probe-timeout" placeholder:"TIME" help:"Time for an answer to one."`
	FailThreshold int     `toml:"fail_threshold" key:"vllm.fail_threshold" name:"fail-threshold" placeholder:"N" help:"Questions in a row without an answer before a vLLM worker gets no requests. It is asked on, and is back when it answers."`
	EvictedTTL    Seconds `toml:"evicted_ttl" key:"vllm.evicted_ttl" name:"evicted-ttl" placeholder:"TIME" help:"How long such a worker is asked on before it is forgotten. 0s asks for ever."`

	Host string `toml:"host" key:"vllm.host" name:"host" placeholder:"HOST" help:"Host part of gateway.listen, as vLLM's proxy has it. With a port alone it is 0.0.0.0."`
	Port int    `toml:"port" key:"vllm.port" name:"port" placeholder:"PORT" help:"Port of gateway.listen, likewise. 0 leaves gateway.listen as it is."`

	Fetch      string `toml:"fetch" key:"vllm.fetch" name:"media-fetch" placeholder:"WHO" help:"gateway: media behind http and https URLs are fetched here, under this gateway's rules, and other schemes are refused. workers: URLs go to vLLM workers as they are."`
	ShortNames bool   `toml:"short_names" key:"vllm.short_names" name:"short-names" negatable:"" help:"Send an Encoder that was sent an image before only the image's name. An Encoder without it in its processor cache says so, and is sent the whole."`
}

// Fronts says whether the configuration is that of a gateway before vLLM workers.
func (v *VLLM) Fronts() bool {
	return v.DynamicRegistration || len(v.EncodeServersURLs)+len(v.DecodeServersURLs)+len(v.ECConsumerZMQAddrs)+len(v.Prefills()) > 0
}

// Prefills returns the prefill workers; none if decode workers prefill too.
func (v *VLLM) Prefills() []string {
	if p := v.PrefillServersURLs; len(p) == 1 && slices.Contains([]string{"none", "disable", ""}, strings.ToLower(strings.TrimSpace(p[0]))) {
		return nil
	}
	return v.PrefillServersURLs
}

// listenAt turns host and port, as vLLM's proxy takes them, into gateway.listen.
func (l *Loaded) listenAt() {
	v := &l.Config.VLLM
	if v.Port == 0 && v.Host == "" {
		return
	}
	host, port, err := net.SplitHostPort(l.Config.Gateway.Listen)
	if err != nil {
		return // Validate tells
	}
	key := "vllm.host"
	if v.Port != 0 {
		host, port, key = "0.0.0.0", strconv.Itoa(v.Port), "vllm.port"
	}
	if v.Host != "" {
		host = v.Host
	}
	l.Config.Gateway.Listen, l.source["gateway.listen"] = net.JoinHostPort(host, port), l.Source(key)
}

// vllm checks the front door of vLLM workers.
func (c *checker) vllm() {
	v := &c.l.Config.VLLM
	if c.role != RoleGateway && c.role != All {
		return
	}
	if !v.Fronts() {
		if c.l.Config.Relay.Enabled {
			c.fault("relay.enabled", "it is for gateways before vLLM workers, which vllm.decode_servers_urls or vllm.dynamic_registration make")
		}
		return
	}
	g := &c.l.Config.Gateway
	if len(g.Encoders)+len(g.Prefills) > 0 {
		c.fault("gateway.prefills", "a gateway fronts Afterimage's workers or vLLM's; leave gateway.encoders and gateway.prefills empty, or the table vllm")
	}
	if v.DynamicRegistration {
		if len(v.EncodeServersURLs)+len(v.Prefills())+len(v.DecodeServersURLs)+len(v.ECConsumerZMQAddrs) > 0 {
			c.fault("vllm.dynamic_registration", "with it, instances register through /instances; leave the URLs and addresses of workers out")
		}
	} else {
		c.static(v)
	}
	c.atLeast("vllm.ec_consumer_dp_size", int64(v.ECConsumerDPSize), 1, "")
	c.atMost("vllm.ec_consumer_dp_size", int64(v.ECConsumerDPSize), 1024, "each replica is looked at for each prompt")
	c.atLeast("vllm.decode_retries", int64(v.DecodeRetries), 0, "")
	c.atLeast("vllm.fail_threshold", int64(v.FailThreshold), 1, "")
	c.atLeast("vllm.port", int64(v.Port), 0, "")
	c.atMost("vllm.port", int64(v.Port), 65535, "ports end there")
	if v.ProbeInterval < 0 {
		c.fault("vllm.probe_interval", "below zero; give a time, or 0s to ask nothing")
	}
	if time.Duration(v.ProbeTimeout) < time.Millisecond {
		c.fault("vllm.probe_timeout", "too short; give at least 1ms")
	}
	if v.EvictedTTL < 0 {
		c.fault("vllm.evicted_ttl", "below zero; give a time, or 0s for ever")
	}
	c.oneOf("vllm.fetch", v.Fetch, "gateway", "workers")
	c.relay(v)
}

// static checks the workers of a fleet that does not change.
func (c *checker) static(v *VLLM) {
	if len(v.EncodeServersURLs) == 0 {
		c.fault("vllm.encode_servers_urls", "missing; name the Encoders, or let them register with vllm.dynamic_registration")
	}
	if len(v.DecodeServersURLs) == 0 {
		c.fault("vllm.decode_servers_urls", "missing; name the workers that decode, or let them register with vllm.dynamic_registration")
	}
	seen := map[string]bool{}
	for _, of := range []struct {
		key  string
		list []string
	}{{"vllm.encode_servers_urls", v.EncodeServersURLs}, {"vllm.prefill_servers_urls", v.Prefills()}, {"vllm.decode_servers_urls", v.DecodeServersURLs}} {
		for _, s := range of.list {
			u, err := url.Parse(strings.TrimSpace(s))
			switch {
			case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "":
				c.fault(of.key, "%q is no worker; write http://HOST:PORT", s)
			case seen[strings.TrimRight(u.String(), "/")]:
				c.fault(of.key, "%q is named twice; a worker has one role", s)
			default:
				seen[strings.TrimRight(u.String(), "/")] = true
			}
		}
	}
	if n := len(v.ECConsumerZMQAddrs); n > 0 {
		want := len(v.DecodeServersURLs) * max(v.ECConsumerDPSize, 1)
		switch {
		case len(v.Prefills()) > 0:
			c.fault("vllm.ec_consumer_zmq_addrs", "Mooncake EC consumer routing supports E+PD only; leave it or vllm.prefill_servers_urls out")
		case n != want:
			c.fault("vllm.ec_consumer_zmq_addrs", "one address per consumer replica is needed: %d servers x %d replicas are %d, not %d",
				len(v.DecodeServersURLs), v.ECConsumerDPSize, want, n)
		}
	}
}

// Seconds is a Duration that a plain number may stand for, as vLLM's flags have it.
type Seconds time.Duration

// UnmarshalText reads a time: 5, 0.5, 500ms, 2m.
func (s *Seconds) UnmarshalText(text []byte) error {
	t := strings.TrimSpace(string(text))
	if x, err := strconv.ParseFloat(t, 64); err == nil && x >= -1e9 && x <= 1e9 {
		*s = Seconds(x * float64(time.Second))
		return nil
	}
	var d Duration
	if err := d.UnmarshalText([]byte(t)); err != nil {
		return fmt.Errorf("%q is no time; write seconds, or a number and a unit, e.g. 5, 500ms, 2m", t)
	}
	*s = Seconds(d)
	return nil
}

// MarshalText writes the time as Duration does.
func (s Seconds) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Seconds) String() string { return Duration(s).String() }
