import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { FormEvent } from 'react';
import { type Body, call, readByOffset, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { SubmitButton } from '../../components/button.tsx';
import { formatCount } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { readForm } from '../../components/read-form.ts';
import { EmptyState, MoreButton, PagesState, PartProblem, Problem } from '../../components/states.tsx';
import { TextCell, TimeCell, Value } from '../../components/text.tsx';
import { useNewId } from '../../components/use-new-id.ts';
import './queues.css';

const pageSize = 50;

export function Queues() {
  const client = useQueryClient();
  const canCreate = usePermission('annotation-queues:create');
  const queues = useInfiniteQuery({
    queryKey: ['queues'],
    ...readByOffset('/api/v1/annotation-queues', pageSize),
  });
  const { id, onSettled } = useNewId();
  const create = useMutation({
    mutationFn: (body: Body<'post', '/api/v1/annotation-queues'>) =>
      call('post', '/api/v1/annotation-queues', { body }),
    onSuccess: () => client.invalidateQueries({ queryKey: ['queues'] }),
    onSettled,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const form = event.currentTarget;
    const read = readForm(event);
    const keys = read('keys')
      .split(',')
      .map((key) => key.trim())
      .filter((key) => key !== '');
    create.mutate(
      {
        id,
        name: read('name'),
        rubric_instructions: read('instructions') || null,
        rubric_items: [...new Set(keys)].map((feedback_key) => ({ feedback_key })),
      },
      { onSuccess: () => form.reset() },
    );
  };
  const rows = queues.data?.pages.flat() ?? [];
  const empty = (
    <EmptyState title="There are no annotation queues">
      A queue collects runs that people review, one after another.
      {canCreate ? ' Create one above.' : ' Your key cannot create one.'}
    </EmptyState>
  );
  return (
    <>
      <header className="page-head">
        <Heading text="Annotation queues" />
      </header>
      {canCreate && (
        <form className="row wrap queue-create" onSubmit={submit} aria-label="Create a queue">
          <input className="input" name="name" aria-label="Name" placeholder="Name" required maxLength={256} />
          <input
            className="input"
            name="keys"
            aria-label="Feedback keys"
            placeholder="Feedback keys, such as correct, tone"
            size={32}
          />
          <input className="input" name="instructions" aria-label="Instructions" placeholder="Instructions" size={32} />
          <SubmitButton disabled={create.isPending}>Create a queue</SubmitButton>
          <Problem message={create.error?.message} />
        </form>
      )}
      <PagesState pages={queues} rows={rows} label="Loading queues" empty={empty}>
        <PlainTable
          label="Annotation queues"
          columns={['Name', { number: 'To review' }, { number: 'Runs' }, 'Feedback keys', 'Description', 'Created']}
          footer={<MoreButton pages={queues} label="Show more queues" />}
        >
          {rows.map(({ id, name, total_runs, rubric_items, description, created_at }) => (
            <tr key={id}>
              <td className="text-cell">
                <Link to="/queues/$queueId" params={{ queueId: id }}>
                  <Value text={name} />
                </Link>
              </td>
              <td className="number">
                <ToReview queueId={id} />
              </td>
              <td className="number">{formatCount(total_runs)}</td>
              <TextCell text={(rubric_items ?? []).map(({ feedback_key }) => feedback_key).join(', ')} />
              <TextCell text={description ?? ''} />
              <TimeCell at={created_at} />
            </tr>
          ))}
        </PlainTable>
      </PagesState>
    </>
  );
}

/** Number of items that the user has to review. */
function ToReview({ queueId }: { readonly queueId: string }) {
  const count = useQuery({
    queryKey: ['queue-to-review', queueId],
    ...readFrom('get', '/api/v1/platform/annotation-queues/{queue_id}/items/count', {
      path: { queue_id: queueId },
      query: { status: 'needs_my_review' },
    }),
    staleTime: 0,
  });
  if (count.error) return <PartProblem what="The number" query={count} />;
  return formatCount(count.data?.count);
}
