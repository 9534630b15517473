import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import type { FormEvent } from 'react';
import { call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { SubmitButton } from '../../components/button.tsx';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { readForm } from '../../components/read-form.ts';
import { Problem, QueryState } from '../../components/states.tsx';
import { TextCell, TimeCell } from '../../components/text.tsx';

export function Members() {
  const client = useQueryClient();
  const canManage = usePermission('organization:manage');
  const members = useQuery({ queryKey: ['members'], ...readFrom('get', '/api/v1/orgs/current/members') });
  const refresh = () => client.invalidateQueries({ queryKey: ['members'] });
  const add = useMutation({
    mutationFn: (body: { email: string; full_name: string | null }) =>
      call('post', '/api/v1/orgs/current/members', { body }),
    onSuccess: refresh,
  });
  const remove = useMutation({
    mutationFn: (id: string) => call('delete', '/api/v1/orgs/current/members/{user_id}', { path: { user_id: id } }),
    onSuccess: refresh,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const form = event.currentTarget;
    const read = readForm(event);
    add.mutate({ email: read('email'), full_name: read('name') || null }, { onSuccess: () => form.reset() });
  };
  const error = add.error ?? remove.error;
  return (
    <div className="settings-body stack">
      {canManage && (
        <form className="row wrap" onSubmit={submit} aria-label="Add a member">
          <input className="input" name="email" type="email" aria-label="Email" placeholder="Email" required />
          <input className="input" name="name" aria-label="Name" placeholder="Name" />
          <SubmitButton disabled={add.isPending}>Add a member</SubmitButton>
        </form>
      )}
      <Problem message={error?.message} />
      <QueryState query={members}>
        {({ members: found }) => (
          <PlainTable label="Members" columns={['Email', 'Name', 'Since']} hasActions={canManage}>
            {found.map(({ id, user_id, email, full_name, created_at }) => (
              <tr key={id}>
                <TextCell text={email} />
                <TextCell text={full_name ?? ''} />
                <TimeCell at={created_at} />
                {canManage && (
                  <td>
                    <ConfirmButton
                      label="Remove"
                      name={`Remove ${email}`}
                      question={`Remove ${email}? The keys of this member are revoked.`}
                      onConfirm={() => remove.mutate(user_id)}
                    />
                  </td>
                )}
              </tr>
            ))}
          </PlainTable>
        )}
      </QueryState>
    </div>
  );
}
