import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { type Answer, call } from '../../api/client.ts';
import { usePermission, useWorkspaces } from '../../api/session.ts';
import { Button, SubmitButton } from '../../components/button.tsx';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { readForm } from '../../components/read-form.ts';
import { Problem, QueryState } from '../../components/states.tsx';
import { showInvisible, TimeCell, Value } from '../../components/text.tsx';

const focusInput = (input: HTMLInputElement | null) => input?.focus();
type Workspace = Answer<'get', '/api/v1/workspaces'>[number];

/** Workspaces that the key has access to. */
export function Workspaces() {
  const client = useQueryClient();
  const canManage = usePermission('workspaces:manage');
  const { listed, current, choose } = useWorkspaces();
  const refresh = () => client.invalidateQueries({ queryKey: ['workspaces'] });
  const create = useMutation({
    mutationFn: (body: { display_name: string }) => call('post', '/api/v1/workspaces', { body }),
    onSuccess: refresh,
  });
  const rename = useMutation({
    mutationFn: ({ id, display_name }: { id: string; display_name: string }) =>
      call('patch', '/api/v1/workspaces/{workspace_id}', { path: { workspace_id: id }, body: { display_name } }),
    onSuccess: refresh,
  });
  const remove = useMutation({
    mutationFn: (id: string) => call('delete', '/api/v1/workspaces/{workspace_id}', { path: { workspace_id: id } }),
    onSuccess: async (_answer, id) => {
      const next = listed.data?.find((each) => each.id !== id);
      if (id === current?.id && next) choose(next.id);
      await refresh();
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const form = event.currentTarget;
    create.mutate({ display_name: readForm(event)('name') }, { onSuccess: () => form.reset() });
  };
  const error = create.error ?? rename.error ?? remove.error;
  return (
    <div className="settings-body stack">
      {canManage && (
        <form className="row wrap" onSubmit={submit} aria-label="Create a workspace">
          <input className="input" name="name" aria-label="Name" placeholder="Name" required maxLength={256} />
          <SubmitButton disabled={create.isPending}>Create a workspace</SubmitButton>
        </form>
      )}
      <Problem message={error?.message} />
      <QueryState query={listed}>
        {(found) => (
          <PlainTable label="Workspaces" columns={['Name', 'Id', 'Created']} hasActions={canManage}>
            {found.map((workspace) => (
              <WorkspaceRow
                key={workspace.id}
                workspace={workspace}
                isCurrent={workspace.id === current?.id}
                {...(canManage
                  ? {
                      onRename: (display_name: string) => rename.mutate({ id: workspace.id, display_name }),
                      onDelete: () => remove.mutate(workspace.id),
                    }
                  : {})}
              />
            ))}
          </PlainTable>
        )}
      </QueryState>
    </div>
  );
}

function WorkspaceRow({
  workspace: { id, display_name: name, created_at },
  isCurrent,
  onRename,
  onDelete,
}: {
  readonly workspace: Workspace;
  readonly isCurrent: boolean;
  readonly onRename?: (name: string) => void;
  readonly onDelete?: () => void;
}) {
  const [isEdited, setEdited] = useState(false);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const next = readForm(event)('name');
    setEdited(false);
    if (next !== '' && next !== name) onRename?.(next);
  };
  return (
    <tr>
      <td className="text-cell">
        {isEdited ? (
          <form className="row" onSubmit={submit}>
            <input
              className="input"
              name="name"
              aria-label={`New name of ${showInvisible(name)}`}
              defaultValue={name}
              required
              maxLength={256}
              ref={focusInput}
            />
            <Button type="submit">Save</Button>
            <Button onClick={() => setEdited(false)}>Cancel</Button>
          </form>
        ) : (
          <span className="row">
            <Value text={name} />
            {isCurrent && <span className="badge">shown</span>}
          </span>
        )}
      </td>
      <td className="mono">{id}</td>
      <TimeCell at={created_at} />
      {onDelete && (
        <td>
          <Button kind="quiet" aria-label={`Rename ${showInvisible(name)}`} onClick={() => setEdited(true)}>
            Rename
          </Button>
          <ConfirmButton
            label="Delete"
            name={`Delete ${name}`}
            question={`Delete ${name}? Its runs, feedback, attachments, prompts, datasets and keys are deleted. Its usage stays.`}
            typed={name}
            onConfirm={onDelete}
          />
        </td>
      )}
    </tr>
  );
}
