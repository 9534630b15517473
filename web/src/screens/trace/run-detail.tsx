import { Link } from '@tanstack/react-router';
import { lazy, Suspense } from 'react';
import { FigureList } from '../../components/figure-list.tsx';
import { formatBytes, formatCost, formatCount, formatSeconds, secondsBetween } from '../../components/format.ts';
import { RunType, Status } from '../../components/run-marks.tsx';
import { LoadingState, NoData } from '../../components/states.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { Time, Value } from '../../components/text.tsx';
import { JsonTree, LongText } from '../../components/values/json-tree.tsx';
import { ValueView } from '../../components/values/value-view.tsx';
import { CopyMenu } from './copy-menu.tsx';
import { type FullRun, type Run, type TraceSource, useFullRun } from './trace-source.ts';

const Feedback = lazy(() => import('./feedback.tsx').then(({ Feedback }) => ({ default: Feedback })));
const ShareButton = lazy(() => import('./share-button.tsx').then(({ ShareButton }) => ({ default: ShareButton })));
const QueueButton = lazy(() => import('./queue-button.tsx').then(({ QueueButton }) => ({ default: QueueButton })));
export const runTabs = ['Run', 'Metadata', 'Feedback', 'Raw'] as const;
export type RunTab = (typeof runTabs)[number];

/** All fields of a run. */
export function RunDetail({
  source,
  runId,
  tab,
  onTab,
}: {
  readonly source: TraceSource;
  readonly runId: string;
  readonly tab: RunTab;
  readonly onTab: (tab: RunTab) => void;
}) {
  const found = useFullRun(source, runId);
  const { data } = found;
  if (!data) return <NoData query={found} label="Loading the run" />;
  const { run } = data;
  return (
    <section className="run-detail" aria-label="Run">
      <header className="run-head">
        <div className="row wrap">
          <RunType type={run.run_type} />
          <h2 className="run-name">
            <Value text={run.name || '(no name)'} />
          </h2>
          <Status status={run.status} />
          <span className="spacer" />
          <CopyMenu run={run} text={data.text} isShared={source.isShared} />
          {!source.isShared && (
            <Suspense>
              <QueueButton runId={run.id} />
              <ShareButton runId={run.id} />
            </Suspense>
          )}
        </div>
        <RunFigures run={run} />
      </header>
      <Tabs
        label="Parts of the run"
        tabs={source.isShared ? runTabs.filter((each) => each !== 'Feedback') : runTabs}
        selected={tab}
        onSelect={onTab}
      >
        <div className="run-body">
          {tab === 'Run' && <RunValues run={run} />}
          {tab === 'Metadata' && <Metadata run={run} isShared={source.isShared} />}
          {tab === 'Feedback' && (
            <Suspense fallback={<LoadingState />}>
              <Feedback run={run} />
            </Suspense>
          )}
          {tab === 'Raw' && <Raw data={data} />}
        </div>
      </Tabs>
    </section>
  );
}

function RunFigures({ run }: { readonly run: Run }) {
  const { start_time, end_time, first_token_time, total_tokens, prompt_tokens, completion_tokens, total_cost } = run;
  return (
    <FigureList
      className="run-figures"
      figures={{
        Start: <Time at={start_time} />,
        Latency: formatSeconds(secondsBetween(start_time, end_time)),
        'First token': first_token_time && formatSeconds(secondsBetween(start_time, first_token_time)),
        Tokens: Boolean(total_tokens) && (
          <>
            {formatCount(total_tokens)}{' '}
            <span className="muted">
              {formatCount(prompt_tokens)} in, {formatCount(completion_tokens)} out
            </span>
          </>
        ),
        Cost: total_cost && formatCost(total_cost),
      }}
    />
  );
}

function RunValues({ run }: { readonly run: Run }) {
  const isEmpty = (value: unknown) => value === null || value === undefined || JSON.stringify(value) === '{}';
  return (
    <div className="stack">
      {run.error && (
        <section className="run-error" aria-label="Error">
          <h2>Error</h2>
          <pre>
            <LongText text={run.error} maxLength={20_000} />
          </pre>
        </section>
      )}
      {isEmpty(run.inputs) ? (
        <NoValue title="Input" text="The run has no inputs." />
      ) : (
        <ValueView title="Input" value={run.inputs} />
      )}
      {isEmpty(run.outputs) ? (
        <NoValue title="Output" text={run.end_time ? 'The run has no outputs.' : 'The run has not ended.'} />
      ) : (
        <ValueView title="Output" value={run.outputs} />
      )}
      <Attachments run={run} />
    </div>
  );
}

function NoValue({ title, text }: { readonly title: string; readonly text: string }) {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      <p className="muted">{text}</p>
    </section>
  );
}

function Metadata({ run, isShared }: { readonly run: Run; readonly isShared: boolean }) {
  const { metadata, ...extra } = (run.extra ?? {}) as Record<string, unknown>;
  const facts = [
    ['Id', run.id],
    ['Trace', run.trace_id],
    ['Parent', run.parent_run_id],
    ['Thread', run.thread_id],
    ['Dotted order', run.dotted_order],
    ['Retention', run.trace_tier],
    ['Received', run.trace_first_received_at],
  ].filter((fact): fact is [string, string] => Boolean(fact[1]));
  return (
    <div className="stack">
      {run.tags && run.tags.length > 0 && (
        <div className="row wrap">
          {run.tags.map((tag) => (
            <span key={tag} className="chip">
              <Value text={tag} />
            </span>
          ))}
        </div>
      )}
      <section aria-label="Metadata">
        <h2>Metadata</h2>
        <JsonTree value={metadata ?? {}} />
      </section>
      <section aria-label="Facts">
        <h2>Facts</h2>
        <dl className="facts">
          {facts.map(([label, value]) => (
            <div key={label}>
              <dt>{label}</dt>
              <dd className="mono">
                {(label === 'Trace' || label === 'Parent') && !isShared ? (
                  <Link to="/runs/$runId" params={{ runId: value }}>
                    {value}
                  </Link>
                ) : label === 'Thread' && !isShared ? (
                  <Link
                    to="/projects/$projectId/threads"
                    params={{ projectId: run.session_id }}
                    search={{ thread: value }}
                  >
                    <Value text={value} />
                  </Link>
                ) : (
                  <LongText text={value} maxLength={300} />
                )}
              </dd>
            </div>
          ))}
        </dl>
      </section>
      {[
        ['More', extra],
        ['Events', run.events],
        ['Details of tokens in', run.prompt_token_details],
        ['Details of tokens out', run.completion_token_details],
        ['Serialized', run.serialized],
      ].map(([label, value]) =>
        value === null || value === undefined || JSON.stringify(value) === '{}' ? null : (
          <section key={String(label)} aria-label={String(label)}>
            <h2>{String(label)}</h2>
            <JsonTree value={value} level={2} />
          </section>
        ),
      )}
    </div>
  );
}

function Raw({ data }: { readonly data: FullRun }) {
  return (
    <div className="stack">
      <p className="muted">
        The response of the API, {formatBytes(new TextEncoder().encode(data.text).length)}. Inputs and outputs have the
        bytes that were sent.
      </p>
      <pre className="text-view">
        <LongText text={data.text} maxLength={50_000} />
      </pre>
    </div>
  );
}

interface AttachmentUrl {
  readonly presigned_url?: string;
  readonly mime_type?: string;
}
/** Images that a browser shows without running anything. */
const images = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** Attachments of a run: images inline, others as downloads. */
function Attachments({ run }: { readonly run: Run }) {
  const found = Object.entries((run.s3_urls ?? {}) as Record<string, AttachmentUrl>).filter(([key]) =>
    key.startsWith('attachment.'),
  );
  if (found.length === 0) return null;
  return (
    <section aria-label="Attachments" className="stack">
      <h2>Attachments</h2>
      <ul className="attachments">
        {found.map(([key, { presigned_url: url, mime_type: type = '' }]) => {
          const name = key.slice('attachment.'.length);
          // The host in the URL may be unknown to the browser, so only the path is used.
          const path = url === undefined ? undefined : new URL(url, window.location.origin).pathname;
          return (
            <li key={key}>
              {path !== undefined && images.includes(type) && <img src={path} alt={name} loading="lazy" />}
              <a href={path} download={name}>
                <Value text={name} />
              </a>
              <span className="muted">{type}</span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}
