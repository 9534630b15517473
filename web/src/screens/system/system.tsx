import { useMutation, useQuery } from '@tanstack/react-query';
import { type Answer, call, readFrom } from '../../api/client.ts';
import { Button } from '../../components/button.tsx';
import { FigureList } from '../../components/figure-list.tsx';
import { formatBytes, formatCount, formatSeconds } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { Status } from '../../components/run-marks.tsx';
import { Problem, QueryState } from '../../components/states.tsx';
import { TimeCell, Value } from '../../components/text.tsx';
import './system.css';

type Report = Answer<'get', '/api/v1/system'>;
const pollMs = 10_000;

/** The state of the installation, for its operator. */
export function System() {
  const system = useQuery({
    queryKey: ['system'],
    ...readFrom('get', '/api/v1/system'),
    refetchInterval: pollMs,
  });
  return (
    <>
      <header className="page-head">
        <Heading text="System" />
        {system.data && <span className="muted">Runlake {system.data.version}</span>}
      </header>
      <QueryState query={system}>
        {(report) => (
          <div className="page-body system">
            <Checks checks={report.checks} />
            <Lag report={report} />
            <DeadLetters deadLetters={report.dead_letters} onReplayed={() => void system.refetch()} />
          </div>
        )}
      </QueryState>
    </>
  );
}

function Checks({ checks }: { readonly checks: Report['checks'] }) {
  return (
    <section aria-labelledby="checks" className="stack">
      <h2 id="checks">Checks</h2>
      <ul className="checks-list">
        {checks.map(({ name, is_ok, message, remedy }) => (
          <li key={name}>
            <Status status={is_ok ? 'success' : 'error'} />
            <strong>{name}</strong>
            <span className="value">{message}</span>
            {remedy && <span className="muted remedy">{remedy}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Lag({ report }: { readonly report: Report }) {
  const { consumer_lag: lag, freshness } = report;
  const byTopic = new Map<string, number>();
  for (const { topic, events } of lag) byTopic.set(topic, (byTopic.get(topic) ?? 0) + events);
  return (
    <section aria-labelledby="freshness" className="stack">
      <h2 id="freshness">Freshness</h2>
      <FigureList
        figures={{
          'Usage is behind by': formatSeconds(freshness.usage_delay_seconds),
          ...Object.fromEntries(
            [...byTopic].map(([topic, events]) => [`Consumer lag of ${topic}`, formatCount(events)]),
          ),
        }}
      />
    </section>
  );
}

function DeadLetters({
  deadLetters,
  onReplayed,
}: {
  readonly deadLetters: Report['dead_letters'];
  readonly onReplayed: () => void;
}) {
  const { waiting, newest } = deadLetters;
  const count = waiting.reduce((sum, { events }) => sum + events, 0);
  const replay = useMutation({
    mutationFn: (ids: string[]) => call('post', '/api/v1/system/dead-letters/replay', { body: { ids } }),
    onSuccess: onReplayed,
  });
  const ids = newest.filter(({ replayed_at }) => replayed_at === null).map(({ id }) => id);
  return (
    <section aria-labelledby="dead-letters" className="stack">
      <div className="row">
        <h2 id="dead-letters">Dead-letter queue</h2>
        <span className="muted">
          {count === 1 ? '1 record was' : `${formatCount(count)} records were`} not replayed
        </span>
        <span className="spacer" />
        {ids.length > 0 && (
          <Button disabled={replay.isPending} onClick={() => replay.mutate(ids)}>
            {ids.length === 1 ? 'Replay this record' : `Replay these ${ids.length}`}
          </Button>
        )}
      </div>
      <Problem message={replay.error?.message} />
      {replay.data && (
        <div role="status">
          <p>
            {replay.data.replayed.length} replayed, {replay.data.refused.length} refused.
          </p>
          {replay.data.refused.map(({ id, reason }) => (
            <p key={id} className="error-text">
              <code>{id}</code> {reason}
            </p>
          ))}
        </div>
      )}
      {newest.length === 0 ? (
        <p className="muted">The queue is empty: every accepted record was stored.</p>
      ) : (
        <PlainTable
          label="Newest dead-letter records"
          columns={['Time', 'Topic', 'Step', 'Reason', { number: 'Size' }, 'Replayed']}
        >
          {newest.map(({ id, time, topic, step, reason, size_bytes, replayed_at }) => (
            <tr key={id}>
              <TimeCell at={time} />
              <td>{topic}</td>
              <td>{step}</td>
              <td className="reason">
                <Value text={reason} />
              </td>
              <td className="number">{formatBytes(size_bytes)}</td>
              <TimeCell at={replayed_at} />
            </tr>
          ))}
        </PlainTable>
      )}
    </section>
  );
}
