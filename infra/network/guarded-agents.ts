/**
 * Connections to addresses that callers name.
 *
 * Invariant: no packet goes to an address that is not allowed, whatever a name resolved to before. A new connection
 *
 * 1. checks a host that is an address itself;
 * 2. else resolves it, and checks every address that the name has;
 * 3. connects to one of just those, without asking again.
 */
import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { type AddressRange, rangeOf } from './address-range.ts';

export interface GuardOptions {
  /** Lets loopback and private addresses pass. Link-local, metadata and multicast ones never do. */
  readonly allowPrivate: boolean;
  /** The error with which a connection to `host`, which leads into `range`, ends. */
  readonly refuse: (host: string, range: AddressRange) => Error;
  /** Most connections at once; further requests wait for one. */
  readonly maxConnections: number;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Default: the name service of this machine. */
  readonly lookup?: typeof systemLookup;
}

/** For `http.request` and whatever is built on it. */
export interface GuardedAgents {
  readonly http: HttpAgent;
  readonly https: HttpsAgent;
  /** Ends all connections, also those in use. */
  close(): void;
}

type ConnectArguments = Parameters<HttpAgent['createConnection']>;

export function openGuardedAgents(options: GuardOptions): GuardedAgents {
  const { authorities, maxConnections: maxSockets } = options;
  const check = (host: string, address: string): Error | undefined => {
    const range = rangeOf(address);
    if (range === undefined || (options.allowPrivate && range.isAllowable)) return undefined;
    return options.refuse(host, range);
  };
  const lookup = guardedLookup(options.lookup ?? systemLookup, check);
  const guard = <T extends HttpAgent>(agent: T): T => {
    const connect = agent.createConnection.bind(agent);
    agent.createConnection = (...[connection, whenConnected]: ConnectArguments) => {
      const host = (connection as { host?: string | null }).host ?? '';
      const refusal = isIP(host) === 0 ? undefined : check(host, host);
      if (refusal === undefined) return connect({ ...connection, lookup }, whenConnected);
      // What is thrown here would not reach the request.
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

/** A name passes only if each of its addresses does, so that the choice among them does not matter. */
function guardedLookup(
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
