import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Config } from '../../infra/config/settings.ts';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { formatHost } from '../../infra/network/format-host.ts';

/**
 * The part of the agent server that a process runs. `front` serves HTTP and claims no runs; `work` executes runs and
 * serves no HTTP.
 */
export type AgentsPart = 'both' | 'front' | 'work';

const reasonByErrorCode: ReadonlyMap<string, string> = new Map([
  ['EADDRNOTAVAIL', 'this host has no such address'],
  ['ENOTFOUND', 'no such host'],
  ['EAI_AGAIN', 'the DNS look-up failed'],
  ['EACCES', 'this user has no permission to bind the port'],
]);

/** Address of a server, and the common prefix of the settings that configure the address. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  readonly settings: 'RUNLAKE' | 'RUNLAKE_AGENTS' | 'RUNLAKE_TOOLS';
}

export function getApiAddress({ host, port }: Pick<Config, 'host' | 'port'>): ListenAddress {
  return { host, port, settings: 'RUNLAKE' };
}

export function getAgentServerAddress(config: Pick<Config, 'agentsHost' | 'agentsPort'>): ListenAddress {
  return { host: config.agentsHost, port: config.agentsPort, settings: 'RUNLAKE_AGENTS' };
}

export function toolServerAddress({ toolsHost, toolsPort }: Pick<Config, 'toolsHost' | 'toolsPort'>): ListenAddress {
  return { host: toolsHost, port: toolsPort, settings: 'RUNLAKE_TOOLS' };
}

/** Converts an error of `listen` to a RunlakeError. */
export function createListenError(cause: unknown, address: ListenAddress): RunlakeError {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === 'EADDRINUSE') return runlakeError('PORT_IN_USE', { ...address }, { cause });
  return runlakeError(
    'HOST_UNUSABLE',
    { ...address, reason: reasonByErrorCode.get(code ?? '') ?? code ?? String(cause) },
    { cause },
  );
}

/**
 * Returns the URL at which graph code reaches the agent server of its own process. Returns undefined if the port is 0
 * and no public URL is configured, because the port is unknown until the server listens.
 */
export function getAgentServerUrl({ agentsHost, agentsPort, agentsPublicUrl }: Config): string | undefined {
  return agentsPort === 0 ? agentsPublicUrl : localUrl(agentsHost, agentsPort);
}

/** Returns the URL of the main API for clients: the public one, else that on this machine. */
export function mainApiUrl({ host, publicUrl }: Pick<Config, 'host' | 'publicUrl'>, port: number): string {
  return publicUrl ?? localUrl(host, port);
}

function localUrl(listenHost: string, port: number): string {
  const host = { '0.0.0.0': '127.0.0.1', '::': '::1' }[listenHost] ?? listenHost;
  return `http://${formatHost(host, port)}`;
}

/**
 * Checks that a port is free. Called before engines are started. Another process can still take the port after the
 * check, so callers of `listen` must handle that error.
 *
 * @throws PORT_IN_USE, HOST_UNUSABLE
 */
export async function checkPort(address: ListenAddress): Promise<void> {
  const probe = createServer();
  try {
    probe.listen(address.port, address.host);
    await once(probe, 'listening');
  } catch (error) {
    throw createListenError(error, address);
  } finally {
    probe.close();
  }
}
