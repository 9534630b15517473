/** The state of the installation for its operator: what `runlake doctor` checks, and the dead-letter queue. */
import { type Static, Type } from 'typebox';
import { consumerLag } from '../../infra/event-log/event-log-metrics.ts';
import { countUnreplayedDeadLetters, readReplayTimes } from '../../pipelines/dead-letters/dead-letter-replays.ts';
import { replayDeadLetter } from '../../pipelines/dead-letters/replay-dead-letter.ts';
import { recordAuditLog } from '../../pipelines/tenants/audit-logs.ts';
import { requireOperator } from '../../pipelines/tenants/operator.ts';
import { readOldestDirtyHourAge } from '../../pipelines/usage/rollup.ts';
import { topics } from '../../schemas/topics.ts';
import { nullable, Text, Timestamp } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { releaseVersion } from '../server/release.ts';

const access = { permission: 'organizations:manage', tenantScope: 'organization' } as const;
const maxShown = 100;
const maxReplayed = 1_000;

const DeadLetter = Type.Object({
  id: Type.String(),
  topic: Type.String(),
  key: Type.String(),
  size_bytes: Type.Integer(),
  step: Type.String({ description: 'The step that refused the event.' }),
  reason: Type.String(),
  time: Timestamp(),
  replayed_at: nullable(Timestamp()),
});

const System = Type.Object({
  version: Type.String(),
  checks: Type.Array(
    Type.Object({
      name: Type.String(),
      is_ok: Type.Boolean(),
      message: Type.String(),
      remedy: nullable(Type.String()),
    }),
    { description: 'What `runlake doctor` checks on the servers.' },
  ),
  consumer_lag: Type.Array(Type.Object({ topic: Type.String(), partition: Type.String(), events: Type.Number() }), {
    description:
      'Events that wait for being stored, by partition that this process consumes. Processes that only serve the API consume none; the check of Kafka covers all partitions.',
  }),
  freshness: Type.Object({
    usage_delay_seconds: Type.Number({
      description: 'Age of the oldest change that usage does not contain yet; 0 if there is none.',
    }),
  }),
  dead_letters: Type.Object({
    waiting: Type.Array(Type.Object({ topic: Type.String(), events: Type.Integer() }), {
      description: 'Records that were not replayed. Counts at most 100,000.',
    }),
    newest: Type.Array(DeadLetter),
  }),
});

const getSystem = defineOperation({
  operationId: 'getSystem',
  method: 'GET',
  path: '/system',
  summary: 'Get the state of the installation',
  description: "Only keys of the first organization, the operator's, can use it.",
  access,
  errors: ['OPERATOR_ONLY', 'EVENT_LOG_UNAVAILABLE'],
  schema: { response: { 200: System } },
  handler: async ({ caller, services }) => {
    const { database, system } = services;
    await requireOperator(database, caller);
    const deadLetters = await system.openDeadLetters();
    const [checks, lag, usageDelaySeconds, waiting, heads] = await Promise.all([
      system.check(),
      consumerLag.read(),
      readOldestDirtyHourAge(database),
      countUnreplayedDeadLetters(deadLetters, topics),
      deadLetters.list({ topics, step: undefined, sinceMs: undefined, untilMs: undefined }, maxShown),
    ]);
    const replayTimes = await readReplayTimes(
      database,
      heads.map(({ id }) => id),
    );
    const newest = heads.map(
      (head): Static<typeof DeadLetter> => ({
        ...{ id: head.id, topic: head.topic, key: head.key, size_bytes: head.sizeBytes, step: head.step },
        ...{ reason: head.reason, time: new Date(head.deadLetteredAtMs).toISOString() },
        replayed_at: replayTimes.get(head.id) ?? null,
      }),
    );
    return {
      version: releaseVersion,
      checks,
      consumer_lag: lag.map(({ labels, value }) => ({
        ...{ topic: String(labels.topic), partition: String(labels.partition), events: value },
      })),
      freshness: { usage_delay_seconds: usageDelaySeconds },
      dead_letters: { waiting: waiting.map(({ labels, value }) => ({ topic: labels.topic, events: value })), newest },
    };
  },
});

const replayDeadLetters = defineOperation({
  operationId: 'replayDeadLetters',
  method: 'POST',
  path: '/system/dead-letters/replay',
  summary: 'Publish dead-letter records to their topics again',
  description: 'Like `runlake dlq replay`. A record is replayed once, unless `force` is set.',
  access,
  errors: ['OPERATOR_ONLY', 'EVENT_LOG_UNAVAILABLE', 'OVERLOADED'],
  schema: {
    body: Type.Object({
      ids: Type.Array(Text({ minLength: 1, maxLength: 500 }), { minItems: 1, maxItems: maxReplayed }),
      force: Type.Optional(
        Type.Boolean({ description: 'Also records that are unreadable, were replayed, or are older than their run.' }),
      ),
    }),
    response: {
      200: Type.Object({
        replayed: Type.Array(Type.String()),
        refused: Type.Array(Type.Object({ id: Type.String(), reason: Type.String() })),
      }),
    },
  },
  handler: async ({ caller, body: { ids, force = false }, services }) => {
    const { database, system } = services;
    await requireOperator(database, caller);
    const { organizationId } = caller;
    const target = { kind: 'dead_letter', id: ids[0] ?? '' };
    await recordAuditLog(database, {
      ...{ organizationId, action: 'dead_letter.replay', target, details: { ids, force } },
    });
    const deadLetters = await system.openDeadLetters();
    const { log } = system;
    const deps = {
      database,
      getSchema: (schemaId: number) => log.getSchema(schemaId),
      publish: async ({ topic: name, key, value, headers }: Parameters<typeof replayDeadLetter>[0]) => {
        const topic = topics.find((known) => known.name === name);
        if (topic !== undefined) await log.publish(topic, [{ key, value, headers }]);
      },
    };
    const replayed: string[] = [];
    const refused: { id: string; reason: string }[] = [];
    for (const id of new Set(ids)) {
      const deadLetter = await deadLetters.find(id);
      const result =
        deadLetter === undefined
          ? ({ outcome: 'refused', reason: 'no such record' } as const)
          : await replayDeadLetter(deadLetter, deps, { force });
      if (result.outcome === 'replayed') replayed.push(id);
      else refused.push({ id, reason: result.reason });
    }
    return { replayed, refused };
  },
});

export const systemOperations = [getSystem, replayDeadLetters];
