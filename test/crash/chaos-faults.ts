import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../histories/random.ts';
import { startRole } from '../role-process.ts';
import type { GateAt } from './fault-proxy.ts';
import type { DedicatedServers } from './own-servers.ts';
import type { Pipeline, PipelineRole, ServerProxies } from './pipeline.ts';
import { isCommit, isProduce, says } from './protocol.ts';

/** An injected fault. `happen` resolves when the fault is over and everything is as before. */
export interface ChaosFault {
  readonly what: string;
  /** Faults with the same target never overlap. */
  readonly target: string;
  inject(): Promise<void>;
}

interface Scene {
  readonly random: Random;
  readonly pipeline: Pipeline;
  readonly own: DedicatedServers;
}

const faultFactories: readonly ((scene: Scene) => ChaosFault)[] = [
  createRoleKill,
  createRoleKill,
  createKillAtStep,
  createKillAtStep,
  createServerKill,
  createServerKill,
  createConnectionStall,
  createConnectionStall,
  createConnectionBreak,
  createLostResponse,
  createSecondSink,
];

export const pickFault = (scene: Scene): ChaosFault => scene.random.pick(faultFactories)(scene);

/** Retries the start as an operator does, because a role may exit if a required server is down. */
async function startWithRetries(pipeline: Pipeline, role: PipelineRole): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await pipeline.start(role);
    } catch (error) {
      if (attempt >= 10) throw error;
    }
  }
}

function createRoleKill({ random, pipeline }: Scene): ChaosFault {
  const role = random.pick<PipelineRole>(['api', 'ingest']);
  const downtimeMs = random.int(1_500);
  return {
    what: `${role} is killed, and restarted after ${downtimeMs} ms`,
    target: role,
    async inject() {
      await pipeline.kill(role);
      await pause(downtimeMs);
      await startWithRetries(pipeline, role);
    },
  };
}

/** Picks a step of a role that a proxy can recognise. */
function pickStep({ random, pipeline }: Scene) {
  const { topicPrefix } = pipeline;
  const steps: readonly (readonly [string, PipelineRole, keyof ServerProxies, (message: Buffer) => boolean])[] = [
    ['a publish', 'api', 'kafka', isProduce(`${topicPrefix}run-events`)],
    ['an insert', 'ingest', 'clickhouse', says(/INSERT INTO run_events /)],
    ['an insert of dirty hours', 'ingest', 'postgres', says(/INSERT INTO usage_dirty_hours/)],
    ['a commit', 'ingest', 'kafka', isCommit],
    ['a roll-up', 'ingest', 'clickhouse', says(/INSERT INTO usage_(hourly|daily)/)],
  ];
  return random.pick(steps);
}

function createLostResponse(scene: Scene): ChaosFault {
  const [what, role, way, recognises] = pickStep(scene);
  const proxy = scene.pipeline.ways[role][way];
  return {
    what: `the response to ${what} of ${role} is lost`,
    target: role,
    async inject() {
      await Promise.race([proxy.hold('sent', recognises), pause(5_000)]);
      proxy.openGates();
    },
  };
}

function createKillAtStep(scene: Scene): ChaosFault {
  const { random, pipeline } = scene;
  const { ways } = pipeline;
  const [what, role, way, recognises] = pickStep(scene);
  const at = random.pick<GateAt>(['before', 'half', 'sent', 'answered']);
  return {
    what: `${role} is killed at ${what}, gate '${at}'`,
    target: role,
    async inject() {
      await Promise.race([ways[role][way].hold(at, recognises), pause(5_000)]);
      ways[role][way].openGates();
      await pipeline.kill(role);
      await startWithRetries(pipeline, role);
    },
  };
}

function createServerKill({ random, own }: Scene): ChaosFault {
  const name = random.pick(['kafka', 'clickhouse', 'postgres', 'registry', 'redis'] as const);
  const awayMs = random.int(6_000);
  return {
    what: `${name} is killed, and restarted after ${awayMs} ms`,
    target: name,
    async inject() {
      await own[name].kill();
      await pause(awayMs);
      await own[name].start();
    },
  };
}

function pickConnection(random: Random) {
  const role = random.pick<PipelineRole>(['api', 'ingest']);
  const name = random.pick<keyof ServerProxies>(['kafka', 'clickhouse', 'postgres', 'registry']);
  return { role, name };
}

function createConnectionStall({ random, pipeline }: Scene): ChaosFault {
  const { role, name } = pickConnection(random);
  // Usually shorter than the timeouts, sometimes longer than all of them.
  const stallMs = random.chance(0.2) ? 20_000 : random.int(6_000);
  return {
    what: `connections from ${role} to ${name} stall for ${stallMs} ms`,
    target: `${role} to ${name}`,
    async inject() {
      pipeline.ways[role][name].stall(true);
      await pause(stallMs);
      pipeline.ways[role][name].stall(false);
    },
  };
}

function createConnectionBreak({ random, pipeline }: Scene): ChaosFault {
  const { role, name } = pickConnection(random);
  const awayMs = random.int(5_000);
  return {
    what: `${role} cannot reach ${name} for ${awayMs} ms`,
    target: `${role} to ${name}`,
    async inject() {
      pipeline.ways[role][name].away(true);
      await pause(awayMs);
      pipeline.ways[role][name].away(false);
    },
  };
}

function createSecondSink({ random, pipeline }: Scene): ChaosFault {
  const lifetimeMs = random.between(2_000, 10_000);
  const signal = random.pick<NodeJS.Signals>(['SIGTERM', 'SIGKILL']);
  return {
    what: `a second ingest process joins, and gets ${signal} after ${lifetimeMs} ms`,
    target: 'second ingest',
    async inject() {
      const second = await startRole('ingest', pipeline.buildEnvironment('ingest')).catch(() => undefined);
      await pause(lifetimeMs);
      await second?.end(signal);
    },
  };
}
