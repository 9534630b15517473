import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import type { FormEvent } from 'react';
import { type Answer, call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { SubmitButton } from '../../components/button.tsx';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { CodeBlock } from '../../components/copy-button.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { readForm } from '../../components/read-form.ts';
import { listOptions, Select } from '../../components/select.tsx';
import { EmptyState, Problem, QueryState } from '../../components/states.tsx';
import { TextCell, Time, TimeCell, Value } from '../../components/text.tsx';

type Key = Answer<'get', '/api/v1/api-key'>[number];
const dayMs = 86_400_000;
/** Lifetimes that can be chosen, by their days. */
const lifetimes = {
  0: 'Does not expire',
  30: 'Expires in 30 days',
  90: 'Expires in 90 days',
  365: 'Expires in a year',
};

/** API keys of the workspace. A new key is shown once. */
export function Keys() {
  const client = useQueryClient();
  const canManage = usePermission('api-keys:manage');
  const keys = useQuery({ queryKey: ['api-keys'], ...readFrom('get', '/api/v1/api-key') });
  const refresh = () => client.invalidateQueries({ queryKey: ['api-keys'] });
  const create = useMutation({
    mutationFn: (body: { description: string; read_only: boolean; expires_at: string | null }) =>
      call('post', '/api/v1/api-key', { body }),
    onSuccess: refresh,
  });
  const revoke = useMutation({
    mutationFn: (id: string) => call('delete', '/api/v1/api-key/{api_key_id}', { path: { api_key_id: id } }),
    onSuccess: refresh,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const form = event.currentTarget;
    const read = readForm(event);
    const days = Number(read('days'));
    create.mutate(
      {
        description: read('description'),
        read_only: read('read-only') === 'on',
        expires_at: days === 0 ? null : new Date(Date.now() + days * dayMs).toISOString(),
      },
      { onSuccess: () => form.reset() },
    );
  };
  const error = create.error ?? revoke.error;
  return (
    <div className="settings-body stack">
      {canManage && (
        <form className="row wrap" onSubmit={submit} aria-label="Create a key">
          <input
            className="input"
            name="description"
            aria-label="Description"
            placeholder="Description"
            required
            maxLength={200}
          />
          <Select name="days" aria-label="Lifetime" options={listOptions(lifetimes)} />
          <label className="row">
            <input type="checkbox" name="read-only" /> Read only
          </label>
          <SubmitButton disabled={create.isPending}>Create a key</SubmitButton>
        </form>
      )}
      <Problem message={error?.message} />
      {create.data && (
        <section className="stack" aria-label="New key">
          <p role="status">
            Copy the key now: it is shown only once. <Value text={create.data.description} />
          </p>
          <CodeBlock label="The new key" code={create.data.key} />
        </section>
      )}
      <QueryState query={keys}>
        {(found) =>
          found.length === 0 ? (
            <EmptyState title="This workspace has no keys of its own">
              Keys of the whole organisation work here too.{canManage && ' Create one for this workspace above.'}
            </EmptyState>
          ) : (
            <KeyTable keys={found} {...(canManage ? { onRevoke: (id: string) => revoke.mutate(id) } : {})} />
          )
        }
      </QueryState>
    </div>
  );
}

function KeyTable({ keys, onRevoke }: { readonly keys: readonly Key[]; readonly onRevoke?: (id: string) => void }) {
  return (
    <PlainTable
      label="Keys"
      columns={['Key', 'Description', 'User', 'Access', 'Created', 'Last used', 'Expires']}
      hasActions={onRevoke !== undefined}
    >
      {keys.map(
        ({ id, short_key, description, user_email, read_only, permissions, created_at, last_used_at, expires_at }) => (
          <tr key={id}>
            <td className="mono">{short_key}</td>
            <TextCell text={description} />
            <TextCell text={user_email} />
            <td title={permissions.join(', ')}>
              {read_only ? 'Read only' : permissions.includes('*') ? 'All' : `${permissions.length} permissions`}
            </td>
            <TimeCell at={created_at} />
            <TimeCell at={last_used_at} />
            <td>{expires_at ? <Time at={expires_at} /> : <span className="muted">Never</span>}</td>
            {onRevoke && (
              <td>
                <ConfirmButton
                  label="Revoke"
                  name={`Revoke ${short_key}`}
                  question={`Revoke ${short_key}? Programs that use it stop working at once.`}
                  onConfirm={() => onRevoke(id)}
                />
              </td>
            )}
          </tr>
        ),
      )}
    </PlainTable>
  );
}
