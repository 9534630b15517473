import { expect, onTestFinished } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { askPostgres } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { startRunlake } from '../runlake-process.ts';
import { testSettings } from '../test-settings.ts';
import { checkRuns } from './check-runs.ts';
import { checkUsage } from './check-usage.ts';
import { makeHistory } from './histories.ts';
import { Model } from './model.ts';
import { planRequests } from './plan-phase.ts';
import { Player } from './play.ts';
import { Projects } from './projects.ts';
import { Random } from './random.ts';
import {
  deleteProject,
  learnProjectIds,
  makeProject,
  makeTenants,
  renameProject,
  type Tenants,
} from './server-of-histories.ts';

const clientsPerWorkspace = 8;
const phases = 3;

export interface HistoryResult {
  readonly runs: number;
  readonly traces: number;
  readonly figures: number;
  readonly kills: number;
}

/**
 * Plays random histories of traces against a separate server, kills the server several times, and compares all stored
 * and counted values with the model. The same seed gives the same histories, requests and times of kills.
 */
export async function playHistories(seed: number, histories: number, maxKills?: number): Promise<HistoryResult> {
  const random = new Random(seed);
  const player = new Player(
    await startRunlake({
      environment: { RUNLAKE_MAX_RUN_AGE_DAYS: '36500', ...testSettings({ patchWaitMs: 30_000 }) },
    }),
    maxKills,
  );
  // Runs even if the test times out.
  onTestFinished(() => player.runlake.remove());
  const tenants = await makeTenants(player.runlake);
  const projects = new Projects();
  const model = new Model(projects);
  const workspaces = [0, 1];
  for (const workspace of workspaces) {
    for (const name of ['default', 'first', 'second', 'third, "quoted"', 'fourth é']) {
      const project = { workspace, name, deleted: false };
      projects.list.push(project);
      await makeProject(player.runlake, tenants, project);
    }
  }
  const clients = workspaces.flatMap((workspace) =>
    Array.from({ length: clientsPerWorkspace }, (_, client) => ({
      workspace,
      drafts: Array.from({ length: Math.ceil(histories / workspaces.length / clientsPerWorkspace) }, () =>
        makeHistory(random, { workspace, client, phases }),
      ).flatMap((history) => history.drafts),
    })),
  );
  const senders = workspaces.map((workspace) =>
    tenants.senders.flatMap((sender, index) => (sender.workspace === workspace ? [index] : [])),
  );
  for (let phase = 0; phase < phases; phase++) {
    const deps = { random, model, projects, senders, phase };
    const plans = clients.map(({ workspace, drafts }) =>
      planRequests(
        workspace,
        interleaveTraces(
          random,
          drafts.filter((draft) => draft.phase === phase),
        ),
        deps,
      ),
    );
    const keys = tenants.senders.map(({ key }) => key);
    const unknown = new Set(await player.play(plans, keys, random));
    for (const request of plans.flat().filter(({ once }) => once)) {
      // A request without a response may be stored or not; what is stored must be complete.
      const events = unknown.has(request) ? await storedEvents(player, tenants, request.events) : request.events;
      model.apply(request.sender, events);
    }
    await learnProjectIds(player.runlake, tenants, projects);
    if (phase < phases - 1) await changeProjects(player, tenants, projects, random, phase);
    if (random.chance(0.5)) expect(await player.restart(), player.runlake.output()).toBe(0);
  }
  await untilCounted(player);
  const runs = await checkRuns(player.runlake, tenants, model, projects);
  const figures = await checkUsage(player.runlake, tenants, model, projects);
  return { runs, traces: model.traces.size, figures, kills: player.kills };
}

/** Interleaves the traces of a client; events of the same trace keep their order. */
function interleaveTraces<D extends { readonly traceId: string }>(random: Random, drafts: readonly D[]): D[] {
  const byTrace = new Map<string, D[]>();
  for (const draft of drafts) byTrace.set(draft.traceId, [...(byTrace.get(draft.traceId) ?? []), draft]);
  const order = random.shuffled(drafts.map(({ traceId }) => traceId));
  return order.map((traceId) => byTrace.get(traceId)?.shift() as D);
}

async function storedEvents<E extends { readonly workspace: number; readonly runId: string }>(
  { runlake }: Player,
  tenants: Tenants,
  events: readonly E[],
): Promise<E[]> {
  const stored: E[] = [];
  for (const event of events) {
    const headers = { 'x-api-key': runlake.apiKey, 'x-tenant-id': tenants.workspaces[event.workspace]?.id ?? '' };
    if ((await fetch(`${runlake.url}/runs/${event.runId}`, { headers })).status === 200) stored.push(event);
  }
  return stored;
}

/**
 * Changes projects between phases, when no request is in flight: each workspace renames one project and may delete one.
 */
async function changeProjects(player: Player, tenants: Tenants, projects: Projects, random: Random, phase: number) {
  for (const workspace of tenants.workspaces.keys()) {
    const renamed = random.pick(projects.existing(workspace).filter(({ name }) => name !== 'default'));
    const name = `renamed in phase ${phase}`;
    await renameProject(player.runlake, tenants, renamed, name);
    projects.rename(renamed, name);
    if (random.chance(0.5)) {
      const deleted = random.pick(projects.existing(workspace));
      await deleteProject(player.runlake, tenants, deleted);
      deleted.deleted = true;
    }
  }
}

async function untilCounted({ runlake }: Player): Promise<void> {
  // With Kafka, the last events may not have marked their hours dirty yet; this read waits until they are stored.
  await askRunlake(runlake, '/sessions?limit=1');
  const { databaseUrl } = runlake.stores();
  const noDirtyHours = async () =>
    (await askPostgres(databaseUrl, 'SELECT count(*)::int FROM usage_dirty_hours'))[0] === 0;
  await until('usage to be counted', noDirtyHours, 90_000);
  await askRunlake(runlake, '/ok');
}
