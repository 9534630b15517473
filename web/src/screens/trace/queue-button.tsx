import { useMutation, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useDeferredValue, useState } from 'react';
import { call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { Icon } from '../../components/icon.tsx';
import { Popover } from '../../components/popover.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { Problem, QueryState } from '../../components/states.tsx';
import { Value } from '../../components/text.tsx';

const maxListed = 50;

export function QueueButton({ runId }: { readonly runId: string }) {
  const canRead = usePermission('annotation-queues:read');
  const canUpdate = usePermission('annotation-queues:update');
  if (!canRead || !canUpdate) return null;
  return (
    <Popover label={<Icon name="queues" />} name="Annotation queues" className="button icon" end>
      {() => <QueueMenu runId={runId} />}
    </Popover>
  );
}

function QueueMenu({ runId }: { readonly runId: string }) {
  const [name, setName] = useState('');
  const wanted = useDeferredValue(name.trim());
  const queues = useQuery({
    queryKey: ['queues-by-name', wanted],
    ...readFrom('get', '/api/v1/annotation-queues', {
      query: { limit: maxListed, name_contains: wanted || undefined },
    }),
  });
  const containing = useQuery({
    queryKey: ['queues-of-run', runId],
    ...readFrom('get', '/api/v1/annotation-queues/{run_id}/queues', { path: { run_id: runId } }),
  });
  const add = useMutation({
    mutationFn: (queueId: string) =>
      call('post', '/api/v1/annotation-queues/{queue_id}/runs', { path: { queue_id: queueId }, body: [runId] }),
    onSuccess: () => containing.refetch(),
  });
  const known = new Set(containing.data?.map(({ id }) => id));
  return (
    <div className="stack share-form">
      <SearchField label="Find a queue" hasShortcut={false} value={name} onChange={setName} />
      <Problem message={containing.error?.message ?? add.error?.message} />
      <QueryState query={queues}>
        {(found) =>
          found.length === 0 ? (
            <p className="muted">
              {wanted === '' ? 'There are no queues.' : 'No queue has this name.'} <Link to="/queues">Queues</Link>
            </p>
          ) : (
            <ul className="queue-menu">
              {found.map(({ id, name: label }) => (
                <li key={id} className="row">
                  <Link to="/queues/$queueId" params={{ queueId: id }} className="clip">
                    <Value text={label} />
                  </Link>
                  <span className="spacer" />
                  {known.has(id) ? (
                    <span className="muted" role="status">
                      In the queue
                    </span>
                  ) : (
                    <Button
                      aria-label={`Add to ${label}`}
                      disabled={add.isPending || containing.isPending}
                      onClick={() => add.mutate(id)}
                    >
                      Add
                    </Button>
                  )}
                </li>
              ))}
            </ul>
          )
        }
      </QueryState>
    </div>
  );
}
