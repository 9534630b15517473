import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Config } from '../../infra/config/settings.ts';
import { fault, type RunlakeError } from '../../infra/errors/runlake-error.ts';

const reasons: ReadonlyMap<string, string> = new Map([
  ['EADDRNOTAVAIL', 'this machine has no such address'],
  ['ENOTFOUND', 'no such host'],
  ['EAI_AGAIN', 'the name could not be looked up'],
  ['EACCES', 'this user may not take that port'],
]);

/** Where a server listens, and the beginning of the names of the settings that say so. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  readonly settings: 'RUNLAKE' | 'RUNLAKE_AGENTS';
}

/** Where the API of Runlake listens. */
export function apiAddress({ host, port }: Pick<Config, 'host' | 'port'>): ListenAddress {
  return { host, port, settings: 'RUNLAKE' };
}

/** Where the agent server listens. */
export function agentServerAddress(config: Pick<Config, 'agentsHost' | 'agentsPort'>): ListenAddress {
  return { host: config.agentsHost, port: config.agentsPort, settings: 'RUNLAKE_AGENTS' };
}

/** The catalogue's error for what kept a server from listening. */
export function listenFault(cause: unknown, address: ListenAddress): RunlakeError {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === 'EADDRINUSE') return fault('PORT_IN_USE', { ...address }, { cause });
  return fault('HOST_UNUSABLE', { ...address, reason: reasons.get(code ?? '') ?? code ?? String(cause) }, { cause });
}

/** Where code of a project reaches the agent server of its own process. Undefined: its port is not known before it listens. */
export function agentServerUrl({ agentsHost, agentsPort, agentsPublicUrl }: Config): string | undefined {
  if (agentsPort === 0) return agentsPublicUrl;
  const host = { '0.0.0.0': '127.0.0.1', '::': '::1' }[agentsHost] ?? agentsHost;
  return `http://${host.includes(':') ? `[${host}]` : host}:${agentsPort}`;
}

/**
 * Finds out that a port is taken before engines are started for it. Whoever listens later still has to expect it.
 * @throws PORT_IN_USE, HOST_UNUSABLE
 */
export async function checkPort(address: ListenAddress): Promise<void> {
  const probe = createServer();
  try {
    probe.listen(address.port, address.host);
    await once(probe, 'listening');
  } catch (error) {
    throw listenFault(error, address);
  } finally {
    probe.close();
  }
}
