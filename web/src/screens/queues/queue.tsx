import { useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useRef, useState } from 'react';
import { v4 as createUuid } from 'uuid';
import { call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Button, SubmitButton } from '../../components/button.tsx';
import { Crumb } from '../../components/crumb.tsx';
import { formatCount } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { EmptyState, ErrorState, NoData, PartProblem, Problem, QueryState } from '../../components/states.tsx';
import { showInvisible } from '../../components/text.tsx';
import { ThreadTurns } from '../threads/thread.tsx';
import { RunDetail, runTabs } from '../trace/run-detail.tsx';
import '../trace/trace.css';
import { workspaceSource } from '../trace/trace-source.ts';
import './queues.css';
import { emptyRating, leaveField, type Queue, type Rating, Rubric, toFeedback, useConfigs } from './rubric.tsx';
import { type QueueItem, useReview } from './use-review.ts';

const route = getRouteApi('/shell/queues/$queueId');

/** Review of the runs of an annotation queue, one after another. */
export function AnnotationQueue() {
  const { queueId } = route.useParams();
  return <LoadedQueue key={queueId} queueId={queueId} />;
}

function LoadedQueue({ queueId }: { readonly queueId: string }) {
  const queue = useQuery({
    queryKey: ['queue', queueId],
    ...readFrom('get', '/api/v1/annotation-queues/{queue_id}', { path: { queue_id: queueId } }),
  });
  return (
    <QueryState query={queue} isPage>
      {(data) => <Review queue={data} />}
    </QueryState>
  );
}

function Review({ queue }: { readonly queue: Queue }) {
  const { item: itemId, tab } = route.useSearch();
  const navigate = useNavigate({ from: '/queues/$queueId' });
  const canUpdate = usePermission('annotation-queues:update');
  const canWrite = usePermission('feedback:write');
  const review = useReview({
    queueId: queue.id,
    itemId,
    reservationMinutes: queue.enable_reservations ? queue.reservation_minutes : 60,
    canReview: canUpdate,
    onShow: (item) => void navigate({ search: (before) => ({ ...before, item }), replace: true }),
  });
  const { pages, counts, items, item, isTaken, reservation, moveToEnd, skip, canStep } = review;
  const drafts = useDrafts(queue.id);
  const problem = review.finish.error ?? moveToEnd.error ?? (isTaken ? undefined : reservation.error);
  return (
    <div className="queue">
      <header className="page-head">
        <Crumb to="/queues" label="Queues" />
        <Heading text={queue.name} />
        <span className="muted" role="status">
          {counts.data &&
            `${formatCount(counts.data.mine)} to review, ${formatCount(counts.data.others)} with others, ${formatCount(counts.data.done)} done`}
        </span>
        <span className="spacer" />
        {item?.run_id && (
          <Link to="/runs/$runId" params={{ runId: item.run_id }} className="button">
            Trace
          </Link>
        )}
        {item && (
          <>
            <Button title="Previous (p)" disabled={!canStep} onClick={() => skip.mutate({ item, offset: -1 })}>
              Previous
            </Button>
            <Button title="Skip (s)" disabled={!canStep} onClick={() => skip.mutate({ item, offset: 1 })}>
              Skip
            </Button>
          </>
        )}
      </header>
      <PartProblem what="The numbers of items" query={counts} />
      {items.length === 0 && (pages.error || pages.isPending) ? (
        <NoData query={pages} label="Loading the queue" />
      ) : item === undefined ? (
        <EmptyState title="Nothing is left to review">
          {counts.data && counts.data.others > 0
            ? 'Other reviewers have the rest.'
            : 'Add runs to the queue from a trace.'}
        </EmptyState>
      ) : (
        <>
          {isTaken && (
            <p className="queue-notice" role="alert">
              Another reviewer has this run.
            </p>
          )}
          <div className="queue-panes">
            <div className="queue-run">
              {item.run_id ? (
                <RunDetail
                  source={workspaceSource}
                  runId={item.run_id}
                  tab={runTabs.find((each) => each === tab) ?? 'Run'}
                  onTab={(next) => void navigate({ search: (before) => ({ ...before, tab: next }), replace: true })}
                />
              ) : (
                <ThreadTurns projectId={item.project_id} threadId={item.thread_id ?? ''} />
              )}
            </div>
            {canUpdate && canWrite ? (
              <ReviewForm
                key={item.id}
                queue={queue}
                item={item}
                drafts={drafts}
                review={review}
                problem={problem?.message}
              />
            ) : (
              <p className="muted review-form">
                To review, your key needs the permissions <code>annotation-queues:update</code> and{' '}
                <code>feedback:write</code>.
              </p>
            )}
          </div>
        </>
      )}
    </div>
  );
}

interface Draft {
  readonly ratings: ReadonlyMap<string, Rating>;
  readonly note: string;
  /** Feedback ids by criterion, so that a retry replaces the feedback of the first attempt. */
  readonly ids: Map<string, string>;
}
const noteKey = 'note';

/**
 * Returns the unsaved reviews of a queue by item. They are kept with the responses of the API, which are forgotten when
 * the session ends, so that the viewer can look at a trace and come back.
 */
function useDrafts(queueId: string): Map<string, Draft> {
  const client = useQueryClient();
  const [drafts] = useState(() => {
    const key = ['review-drafts', queueId];
    client.setQueryDefaults(key, { gcTime: Number.POSITIVE_INFINITY });
    return client.setQueryData<Map<string, Draft>>(key, (kept) => kept ?? new Map()) ?? new Map<string, Draft>();
  });
  return drafts;
}

function ReviewForm({
  queue,
  item,
  drafts,
  review,
  problem,
}: {
  readonly queue: Queue;
  readonly item: QueueItem;
  readonly drafts: Map<string, Draft>;
  readonly review: ReturnType<typeof useReview>;
  readonly problem: string | undefined;
}) {
  const { finish, moveToEnd, skip, isTaken, canStep, isLeaving } = review;
  // Feedback belongs to runs; feedback on a thread is given on the runs of its turns.
  const rubric = item.run_id ? (queue.rubric_items ?? []) : [];
  const configs = useConfigs(rubric.map(({ feedback_key }) => feedback_key));
  const [draft, setDraft] = useState<Draft>(
    () => drafts.get(item.id) ?? { ratings: new Map(), note: '', ids: new Map() },
  );
  const [invalid, setInvalid] = useState<string>();
  const note = useRef<HTMLTextAreaElement>(null);
  const change = (next: Partial<Draft>) => {
    const changed = { ...draft, ...next };
    drafts.set(item.id, changed);
    setDraft(changed);
  };
  const rate = (key: string, rating: Partial<Rating>) => {
    const before = draft.ratings.get(key) ?? emptyRating;
    change({ ratings: new Map(draft.ratings).set(key, { ...before, ...rating }) });
  };
  const isBusy = finish.isPending || moveToEnd.isPending || (rubric.length > 0 && configs.data === undefined);
  const done = () => {
    if (isBusy || isTaken || isLeaving()) return;
    const feedback = rubric.map((each) =>
      toFeedback(each, configs.data?.get(each.feedback_key), draft.ratings.get(each.feedback_key) ?? emptyRating),
    );
    const problems = feedback.filter((each) => typeof each === 'string');
    setInvalid(problems.length > 0 ? problems.join(' ') : undefined);
    if (problems.length > 0) return;
    const identify = (criterion: string) => {
      // `crypto.randomUUID` is missing on http pages of other hosts than localhost.
      const id = draft.ids.get(criterion) ?? createUuid();
      draft.ids.set(criterion, id);
      return id;
    };
    const all = feedback.flatMap((each) => (typeof each === 'object' ? [{ id: identify(each.key), ...each }] : []));
    const comment = draft.note.trim();
    // A criterion can have the key of the note, but not an empty one.
    if (comment !== '') all.push({ id: identify(''), key: noteKey, score: null, value: null, comment });
    const before = () => Promise.all(all.map((each) => sendFeedback(item, each)));
    finish.mutate({ id: item.id, before }, { onSuccess: () => drafts.delete(item.id) });
  };
  const later = () => {
    if (!isBusy && !isLeaving()) moveToEnd.mutate(item);
  };
  useShortcuts({
    d: { label: 'Done', run: done },
    e: { label: 'Move to the end', run: later },
    s: { label: 'Skip', run: () => canStep && skip.mutate({ item, offset: 1 }) },
    p: { label: 'Previous run', run: () => canStep && skip.mutate({ item, offset: -1 }) },
    ...(item.run_id ? { n: { label: 'Write a note', run: () => note.current?.focus() } } : {}),
    Escape: { label: 'Leave a field' },
  });
  return (
    <form
      className="review-form stack"
      aria-label="Review"
      onKeyDown={leaveField}
      onSubmit={(event) => {
        event.preventDefault();
        done();
      }}
    >
      {queue.rubric_instructions && <p className="long-text">{showInvisible(queue.rubric_instructions)}</p>}
      {configs.error && <ErrorState error={configs.error} onRetry={() => void configs.refetch()} />}
      {rubric.length > 0 && configs.data && (
        <Rubric items={rubric} configs={configs.data} ratings={draft.ratings} onRate={rate} />
      )}
      {item.run_id ? (
        <label className="field">
          Note
          <textarea
            className="input"
            ref={note}
            rows={3}
            value={draft.note}
            onChange={({ target }) => change({ note: target.value })}
          />
        </label>
      ) : (
        <p className="muted">This item is a thread. Give feedback on its turns.</p>
      )}
      <Problem message={invalid ?? problem} />
      <div className="row wrap">
        <SubmitButton title="Done (d)" disabled={isBusy || isTaken}>
          Done
        </SubmitButton>
        <Button title="Move to the end (e)" disabled={isBusy} onClick={later}>
          Move to the end
        </Button>
        <span className="spacer" />
        <span className="muted">
          <kbd>?</kbd> all keys
        </span>
      </div>
    </form>
  );
}

interface NewFeedback {
  readonly id: string;
  readonly key: string;
  readonly score: number | null;
  readonly value: string | null;
  readonly comment: string | null;
}

async function sendFeedback({ run_id, project_id }: QueueItem, feedback: NewFeedback) {
  const body = { ...feedback, run_id, session_id: project_id, feedback_source: { type: 'app' } };
  await call('post', '/api/v1/feedback', { body });
}
