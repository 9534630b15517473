/**
 * Starts a role, and waits for servers that are away, at the start and until every part is up.
 *
 *   1. The role listens: `/ok` answers 200, `/ready` 503 with the state of each server, any other request 503 STARTING.
 *   2. All servers that have an address are asked, again and again, until all answer.
 *   3. The parts come up (`serve-role.ts`). If a server goes away meanwhile, the parts that are up end, and step 2 follows.
 *   4. The listener is open: requests are served, and `/ready` asks the parts.
 * Only a server that is away is waited for (`isAway`): a wrong password or a refused schema ends the start with its error.
 */
import { backoffMs, pause } from '../../infra/event-log/kafka/pause.ts';
import { type BootstrapOutcome, bootstrap } from '../../pipelines/tenants/bootstrap.ts';
import { Ends } from './ends.ts';
import { listenForRole } from './role-listener.ts';
import { type RoleParts, type ServedRole, serveRole } from './serve-role.ts';
import { isAway, openServerProbes, waitForServers } from './wait-for-servers.ts';

/** @throws what the parts throw, except for servers that are away. */
export async function startRole(
  parts: Omit<RoleParts, 'listener' | 'bootstrap'>,
): Promise<Pick<ServedRole, 'replaced'>> {
  const { config, logger, stores, ends, loaded } = parts;
  const probes = await openServerProbes(config, stores, logger);
  ends.add('server probes', () => probes.close());
  const listener = await listenForRole({ config, logger, mainApi: loaded.mainApi }, probes.healthChecks);
  // Readiness is answered until everything else has ended.
  ends.add('listener', () => listener.close());
  const stopping = new AbortController();
  let partEnds = new Ends();
  ends.add('parts of the role', () => partEnds.run(logger));
  ends.add('start', () => stopping.abort());

  // The first attempt to reach it shows the key that it made, also if a later step fails.
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
      logger.warn({ err: error }, 'a server went away during the start: starting the parts again');
      await partEnds.run(logger);
      partEnds = new Ends();
      await pause(backoffMs(attempt, 200, 5_000), stopping.signal);
    }
  }
}
