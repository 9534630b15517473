/**
 * HTTP agents for hosts that callers specify (protection against SSRF).
 *
 * Invariant: no packet is sent to an address that is not allowed, even if the DNS answer changes. A new connection
 *
 * 1. checks the host, if it is an IP address;
 * 2. otherwise resolves it and checks every address of the name;
 * 3. connects to one of the checked addresses, without another lookup.
 */
import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { type AddressRange, classifyAddress } from './address-range.ts';

export interface GuardOptions {
  /**
   * Whether loopback and private addresses are allowed. Link-local, metadata and multicast addresses are never allowed.
   */
  readonly allowPrivate: boolean;
  /** Creates the error for a connection to `host` with an address in `range`. */
  readonly refuse: (host: string, range: AddressRange) => Error;
  /** Maximum number of concurrent connections; further requests wait. */
  readonly maxConnections: number;
  /** Trusted CA certificates, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Resolves host names. Default: the DNS resolver of this machine. */
  readonly lookup?: typeof systemLookup;
}

/** Agents for `http.request` and libraries that use it. */
export interface GuardedAgents {
  readonly http: HttpAgent;
  readonly https: HttpsAgent;
  /** Closes all connections, including those in use. */
  close(): void;
}

type ConnectArguments = Parameters<HttpAgent['createConnection']>;

export function openGuardedAgents(options: GuardOptions): GuardedAgents {
  const { authorities, maxConnections: maxSockets } = options;
  const check = (host: string, address: string): Error | undefined => {
    const range = classifyAddress(address);
    if (range === undefined || (options.allowPrivate && range.isAllowable)) return undefined;
    return options.refuse(host, range);
  };
  const lookup = createGuardedLookup(options.lookup ?? systemLookup, check);
  const guard = <T extends HttpAgent>(agent: T): T => {
    const connect = agent.createConnection.bind(agent);
    agent.createConnection = (...[connection, whenConnected]: ConnectArguments) => {
      const host = (connection as { host?: string | null }).host ?? '';
      const refusal = isIP(host) === 0 ? undefined : check(host, host);
      if (refusal === undefined) return connect({ ...connection, lookup }, whenConnected);
      // Use the callback, because an error that is thrown here would not reach the request.
      process.nextTick(() => whenConnected?.(refusal, undefined as never));
      return undefined as never;
    };
    return agent;
  };
  const http = guard(new HttpAgent({ keepAlive: true, maxSockets }));
  const https = guard(new HttpsAgent({ keepAlive: true, maxSockets, ...(authorities && { ca: [...authorities] }) }));
  return {
    http,
    https,
    close() {
      http.destroy();
      https.destroy();
    },
  };
}

/**
 * Creates a lookup that accepts a host name only if all its addresses are allowed, so it does not matter which address
 * Node picks.
 */
function createGuardedLookup(
  resolve: typeof systemLookup,
  check: (host: string, address: string) => Error | undefined,
): LookupFunction {
  return (host, options, callback) => {
    resolve(host, { ...options, all: true }, (error, found: LookupAddress[]) => {
      if (error) return callback(error, []);
      for (const { address } of found) {
        const refusal = check(host, address);
        if (refusal !== undefined) return callback(refusal, []);
      }
      const [first] = found;
      if (options.all) callback(null, found);
      else callback(null, first?.address ?? '', first?.family);
    });
  };
}
