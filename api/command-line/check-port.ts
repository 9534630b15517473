import { once } from 'node:events';
import { createServer } from 'node:net';
import { fault } from '../../infra/errors/runlake-error.ts';

/**
 * Finds out that a port is taken before engines are started for it. Whoever listens later still has to expect it.
 * @throws PORT_IN_USE
 */
export async function checkPort({ host, port }: { readonly host: string; readonly port: number }): Promise<void> {
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, 'listening');
  } catch (error) {
    // What else keeps a server from listening shows when it does, with its own words.
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE')
      throw fault('PORT_IN_USE', { host, port }, { cause: error });
  } finally {
    probe.close();
  }
}
