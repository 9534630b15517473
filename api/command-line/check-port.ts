import { once } from 'node:events';
import { createServer } from 'node:net';
import { fault, type RunlakeError } from '../../infra/errors/runlake-error.ts';

const reasons: ReadonlyMap<string, string> = new Map([
  ['EADDRNOTAVAIL', 'this machine has no such address'],
  ['ENOTFOUND', 'no such host'],
  ['EAI_AGAIN', 'the name could not be looked up'],
  ['EACCES', 'this user may not take that port'],
]);

/** The catalogue's error for what kept a server from listening. */
export function listenFault(cause: unknown, address: { readonly host: string; readonly port: number }): RunlakeError {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === 'EADDRINUSE') return fault('PORT_IN_USE', { ...address }, { cause });
  return fault('HOST_UNUSABLE', { ...address, reason: reasons.get(code ?? '') ?? code ?? String(cause) }, { cause });
}

/**
 * Finds out that a port is taken before engines are started for it. Whoever listens later still has to expect it.
 * @throws PORT_IN_USE, HOST_UNUSABLE
 */
export async function checkPort({ host, port }: { readonly host: string; readonly port: number }): Promise<void> {
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, 'listening');
  } catch (error) {
    throw listenFault(error, { host, port });
  } finally {
    probe.close();
  }
}
