import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../histories/random.ts';
import { startRole } from '../role-process.ts';
import type { GateAt } from './fault-proxy.ts';
import type { OwnServers } from './own-servers.ts';
import type { Pipeline, PipelineRole, Ways } from './pipeline.ts';
import { isBatchBegun, isBatchCompleted, isProduce, says } from './protocol.ts';

/** One thing that goes wrong, and its end: everything is as before when it resolves. */
export interface ChaosFault {
  readonly what: string;
  /** Faults that touch the same thing do not come together. */
  readonly touches: string;
  happen(): Promise<void>;
}

interface Scene {
  readonly random: Random;
  readonly pipeline: Pipeline;
  readonly own: OwnServers;
}

const makers: readonly ((scene: Scene) => ChaosFault)[] = [
  killedRole,
  killedRole,
  killedAtStep,
  killedAtStep,
  killedServer,
  killedServer,
  stalledWay,
  stalledWay,
  brokenWay,
  lostAnswer,
  secondSink,
];

export const anyFault = (scene: Scene): ChaosFault => scene.random.pick(makers)(scene);

/** As whoever runs it does: again and again, because a role ends where a server that it needs to start is away. */
async function startAgain(pipeline: Pipeline, role: PipelineRole): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await pipeline.start(role);
    } catch (error) {
      if (attempt >= 10) throw error;
    }
  }
}

function killedRole({ random, pipeline }: Scene): ChaosFault {
  const role = random.pick<PipelineRole>(['api', 'ingest']);
  const awayMs = random.int(1_500);
  return {
    what: `${role} is killed, for ${awayMs} ms`,
    touches: role,
    async happen() {
      await pipeline.kill(role);
      await pause(awayMs);
      await startAgain(pipeline, role);
    },
  };
}

/** A step of a role that a proxy recognises. */
function someStep({ random, pipeline }: Scene) {
  const { topicPrefix } = pipeline;
  const steps: readonly (readonly [string, PipelineRole, keyof Ways, (message: Buffer) => boolean])[] = [
    ['a batch for Kafka', 'api', 'kafka', isProduce(`${topicPrefix}run-events`)],
    ['the note of a cut', 'ingest', 'kafka', isBatchBegun],
    ['an insert', 'ingest', 'clickhouse', says(/INSERT INTO runs /)],
    ['the note of hours', 'ingest', 'postgres', says(/INSERT INTO usage_dirty_hours/)],
    ['a commit', 'ingest', 'kafka', isBatchCompleted],
    ['a count', 'ingest', 'clickhouse', says(/INSERT INTO usage_(hourly|daily)/)],
  ];
  return random.pick(steps);
}

function lostAnswer(scene: Scene): ChaosFault {
  const [what, role, way, recognises] = someStep(scene);
  const proxy = scene.pipeline.ways[role][way];
  return {
    what: `the answer to ${what} of ${role} never comes`,
    touches: role,
    async happen() {
      await Promise.race([proxy.hold('sent', recognises), pause(5_000)]);
      proxy.letPass();
    },
  };
}

function killedAtStep(scene: Scene): ChaosFault {
  const { random, pipeline } = scene;
  const { ways } = pipeline;
  const [what, role, way, recognises] = someStep(scene);
  const at = random.pick<GateAt>(['before', 'half', 'sent', 'answered']);
  return {
    what: `${role} is killed at ${what} (${at})`,
    touches: role,
    async happen() {
      await Promise.race([ways[role][way].hold(at, recognises), pause(5_000)]);
      ways[role][way].letPass();
      await pipeline.kill(role);
      await startAgain(pipeline, role);
    },
  };
}

function killedServer({ random, own }: Scene): ChaosFault {
  const name = random.pick(['kafka', 'clickhouse', 'postgres', 'registry', 'redis'] as const);
  const awayMs = random.int(6_000);
  return {
    what: `${name} is killed, for ${awayMs} ms`,
    touches: name,
    async happen() {
      await own[name].kill();
      await pause(awayMs);
      await own[name].start();
    },
  };
}

function someWay(random: Random) {
  const role = random.pick<PipelineRole>(['api', 'ingest']);
  const name = random.pick<keyof Ways>(['kafka', 'clickhouse', 'postgres', 'registry']);
  return { role, name };
}

function stalledWay({ random, pipeline }: Scene): ChaosFault {
  const { role, name } = someWay(random);
  // Mostly shorter than the limits, now and then longer than all.
  const stallMs = random.chance(0.2) ? 20_000 : random.int(6_000);
  return {
    what: `${role} and ${name} stall for ${stallMs} ms`,
    touches: `${role} to ${name}`,
    async happen() {
      pipeline.ways[role][name].stall(true);
      await pause(stallMs);
      pipeline.ways[role][name].stall(false);
    },
  };
}

function brokenWay({ random, pipeline }: Scene): ChaosFault {
  const { role, name } = someWay(random);
  const awayMs = random.int(5_000);
  return {
    what: `${role} cannot reach ${name} for ${awayMs} ms`,
    touches: `${role} to ${name}`,
    async happen() {
      pipeline.ways[role][name].away(true);
      await pause(awayMs);
      pipeline.ways[role][name].away(false);
    },
  };
}

function secondSink({ random, pipeline }: Scene): ChaosFault {
  const staysMs = random.between(2_000, 10_000);
  const signal = random.pick<NodeJS.Signals>(['SIGTERM', 'SIGKILL']);
  return {
    what: `a second ingest joins for ${staysMs} ms and ends by ${signal}`,
    touches: 'second ingest',
    async happen() {
      const second = await startRole('ingest', pipeline.environmentOf('ingest')).catch(() => undefined);
      await pause(staysMs);
      await second?.end(signal);
    },
  };
}
