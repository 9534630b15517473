import { useMutation, useQuery } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { readForm } from '../../components/read-form.ts';
import { EmptyState, Permitted, Problem, QueryState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { useNewId } from '../../components/use-new-id.ts';
import { JsonTree, LongText } from '../../components/values/json-tree.tsx';

/** What feedback names of its run. */
interface RatedRun {
  readonly id: string;
  readonly trace_id: string;
  readonly session_id: string;
}

/** Feedback on a run, and a form that adds some. */
export function Feedback({ run }: { readonly run: RatedRun }) {
  return (
    <Permitted permission="feedback:read">
      <FeedbackList run={run} />
    </Permitted>
  );
}

function FeedbackList({ run }: { readonly run: RatedRun }) {
  const feedback = useQuery({
    queryKey: ['feedback', run.id],
    ...readFrom('get', '/api/v1/feedback', { query: { run: [run.id], include_user_names: true } }),
  });
  const canWrite = usePermission('feedback:write');
  return (
    <div className="stack">
      {canWrite && <FeedbackForm run={run} onSent={() => void feedback.refetch()} />}
      <QueryState query={feedback}>
        {(items) =>
          items.length === 0 ? (
            <EmptyState title="No feedback on this run">
              {canWrite ? 'Add some above, or with ' : 'Add some with '}
              <code>client.createFeedback(…)</code> of the SDK.
            </EmptyState>
          ) : (
            <ul className="feedback-list">
              {items.map(({ id, key, score, value, comment, created_at, feedback_source }) => (
                <li key={id}>
                  <div className="row">
                    <strong>
                      <Value text={key} />
                    </strong>
                    <span>{score === null || score === undefined ? '' : String(score)}</span>
                    {typeof value === 'string' && <Value text={value} />}
                    <span className="spacer" />
                    <span className="muted">{feedback_source?.user_name ?? feedback_source?.type}</span>
                    <Time at={created_at} />
                  </div>
                  {comment && <LongText text={comment} maxLength={2000} />}
                  {typeof value === 'object' && value !== null && <JsonTree value={value} />}
                </li>
              ))}
            </ul>
          )
        }
      </QueryState>
    </div>
  );
}

function FeedbackForm({ run, onSent }: { readonly run: RatedRun; readonly onSent: () => void }) {
  const [problem, setProblem] = useState<string>();
  const { id, onSettled } = useNewId();
  const send = useMutation({
    mutationFn: (body: { key: string; score: number | null; comment: string | null }) =>
      call('post', '/api/v1/feedback', {
        body: {
          ...body,
          id,
          run_id: run.id,
          trace_id: run.trace_id,
          session_id: run.session_id,
          feedback_source: { type: 'app' },
        },
      }),
    onSuccess: onSent,
    onSettled,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const form = event.currentTarget;
    const read = readForm(event);
    const [key, score] = [read('key'), read('score')];
    if (key === '') return setProblem('Give the feedback a key, such as `correct`.');
    if (score !== '' && !Number.isFinite(Number(score))) return setProblem('The score must be a number.');
    setProblem(undefined);
    send.mutate(
      { key, score: score === '' ? null : Number(score), comment: read('comment') || null },
      { onSuccess: () => form.reset() },
    );
  };
  return (
    <form className="row wrap feedback-form" onSubmit={submit} aria-label="Add feedback">
      <input className="input" name="key" placeholder="Key" aria-label="Key" size={12} />
      <input className="input" name="score" placeholder="Score" aria-label="Score" inputMode="decimal" size={6} />
      <input className="input feedback-comment" name="comment" placeholder="Comment" aria-label="Comment" />
      <Button type="submit" disabled={send.isPending}>
        Add
      </Button>
      <Problem message={problem ?? send.error?.message} />
    </form>
  );
}
