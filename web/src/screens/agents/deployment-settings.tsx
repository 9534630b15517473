import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { call } from '../../api/client.ts';
import { Button, SubmitButton } from '../../components/button.tsx';
import { Permitted, Problem } from '../../components/states.tsx';
import { showInvisible, Value } from '../../components/text.tsx';
import type { Deployment } from './agents.tsx';

/** Secrets of a deployment, whose values are never shown, and its deletion. */
export function DeploymentSettings({ deployment }: { readonly deployment: Deployment }) {
  return (
    <Permitted permission="deployments:write">
      <div className="page-body stack agents-settings">
        <Secrets key={deployment.latest_revision_id} deployment={deployment} />
        <Deletion deployment={deployment} />
      </div>
    </Permitted>
  );
}

function Secrets({ deployment: { id, secrets } }: { readonly deployment: Deployment }) {
  const client = useQueryClient();
  const [removed, setRemoved] = useState<ReadonlySet<string>>(new Set());
  const save = useMutation({
    mutationFn: (next: { name: string; value: string }[]) =>
      call('patch', '/api/v2/deployments/{deployment_id}', { path: { deployment_id: id }, body: { secrets: next } }),
    onSuccess: (changed) => {
      client.setQueryData(['deployment', id], changed);
      setRemoved(new Set());
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const data = new FormData(form);
    const kept = secrets
      .filter(({ name }) => !removed.has(name))
      .map(({ name }) => ({ name, value: String(data.get(`value of ${name}`) ?? '') }));
    const name = String(data.get('new name')).trim();
    const next = name === '' ? kept : [...kept, { name, value: String(data.get('new value')) }];
    save.mutate(next, { onSuccess: () => form.reset() });
  };
  const toggle = (name: string) => {
    const next = new Set(removed);
    if (!next.delete(name)) next.add(name);
    setRemoved(next);
  };
  return (
    <form className="stack" onSubmit={submit} aria-label="Secrets">
      <h2>Secrets</h2>
      <p className="muted">
        Environment variables of graph code. Values are never shown; an empty field keeps the value. Saving creates a
        revision.
      </p>
      {secrets.map(({ name }) => (
        <div key={name} className="row wrap">
          <span className={removed.has(name) ? 'agents-secret mono removed' : 'agents-secret mono'}>
            <Value text={name} />
          </span>
          <input
            className="input"
            type="password"
            autoComplete="off"
            name={`value of ${name}`}
            aria-label={`New value of ${showInvisible(name)}`}
            placeholder="unchanged"
            disabled={removed.has(name)}
          />
          <Button
            aria-pressed={removed.has(name)}
            aria-label={`Remove ${showInvisible(name)}`}
            onClick={() => toggle(name)}
          >
            Remove
          </Button>
        </div>
      ))}
      <div className="row wrap">
        <input
          className="input agents-secret mono"
          name="new name"
          aria-label="Name of a new secret"
          placeholder="NAME"
        />
        <input
          className="input"
          type="password"
          autoComplete="off"
          name="new value"
          aria-label="Value of the new secret"
          placeholder="value"
        />
      </div>
      <Problem message={save.error?.message} />
      <div className="row">
        <SubmitButton disabled={save.isPending}>Save the secrets</SubmitButton>
      </div>
    </form>
  );
}

function Deletion({ deployment: { id, name, status } }: { readonly deployment: Deployment }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [typed, setTyped] = useState('');
  // As the viewer sees it: spaces around it and some characters are invisible.
  const wanted = showInvisible(name).trim();
  const isTyped = showInvisible(typed).trim() === wanted;
  const remove = useMutation({
    mutationFn: () => call('delete', '/api/v2/deployments/{deployment_id}', { path: { deployment_id: id } }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['deployments'] });
      await navigate({ to: '/agents' });
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (isTyped) remove.mutate();
  };
  return (
    <form className="stack" onSubmit={submit} aria-label="Delete the deployment">
      <h2>Delete</h2>
      <p className="muted">
        Its threads, runs, assistants, crons, stored items, revisions and secrets are deleted. Traces and usage stay.
      </p>
      <label className="field">
        <span>
          Name of the deployment, <strong className="question">{wanted}</strong>, to confirm
        </span>
        <input className="input" value={typed} onChange={({ target }) => setTyped(target.value)} autoComplete="off" />
      </label>
      <Problem message={remove.error?.message} />
      <div className="row">
        <Button type="submit" kind="danger" disabled={!isTyped || status === 'AWAITING_DELETE' || remove.isPending}>
          Delete the deployment
        </Button>
      </div>
    </form>
  );
}
