/**
 * Starts a role. During the start it waits for servers that are unavailable.
 *
 *   1. The role listens: `/ok` responds with 200, `/ready` with 503 and the state of each server, any other request
 *      with 503 STARTING.
 *   2. The role checks all servers with a configured address until all respond.
 *   3. The parts start (`serve-role.ts`). If a server becomes unavailable, the started parts end, and step 2 follows.
 *   4. The listener opens: requests are served, and `/ready` checks the parts.
 *
 * Only unavailable servers are waited for (`isAway`): a wrong password or a refused schema ends the start with its error.
 */
import { backoffMs, pause } from '../../infra/timeouts/backoff.ts';
import { type BootstrapOutcome, bootstrap } from '../../pipelines/tenants/bootstrap.ts';
import { Ends } from './ends.ts';
import { listenForRole } from './role-listener.ts';
import { type RoleParts, type ServedRole, serveRole } from './serve-role.ts';
import { isAway, openServerProbes, waitForServers } from './wait-for-servers.ts';

/** @throws the errors of the parts, except those of unavailable servers. */
export async function startRole(
  parts: Omit<RoleParts, 'listener' | 'bootstrap'>,
): Promise<Pick<ServedRole, 'replaced'>> {
  const { config, logger, stores, ends, loaded } = parts;
  const probes = await openServerProbes(config, stores, logger);
  ends.add('server probes', () => probes.close());
  const listener = await listenForRole({ config, logger, mainApi: loaded.mainApi }, probes.healthChecks);
  // `/ready` responds until everything else has ended.
  ends.add('listener', () => listener.close());
  const stopping = new AbortController();
  let partEnds = new Ends();
  ends.add('parts of the role', () => partEnds.run(logger));
  ends.add('start', () => stopping.abort());

  // The first attempt that gets this far prints the key it created, even if a later step fails.
  let outcome: BootstrapOutcome | undefined;
  const bootstrapOnce = async () => (outcome ??= await bootstrap(stores.database, config));

  for (let attempt = 0; ; attempt++) {
    await waitForServers(probes.healthChecks, {
      logger,
      signal: stopping.signal,
      onWaiting: (servers) => listener.waitFor(servers.join(', ') || 'its parts'),
    });
    try {
      const served = await serveRole({ ...parts, ends: partEnds, listener, bootstrap: bootstrapOnce });
      await probes.close();
      served.open();
      return served;
    } catch (error) {
      if (stopping.signal.aborted || !isAway(error)) throw error;
      logger.warn({ err: error }, 'server became unavailable during start, restarting the parts');
      await partEnds.run(logger);
      partEnds = new Ends();
      await pause(backoffMs(attempt, 200, 5_000), stopping.signal);
    }
  }
}
