import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type FormEvent, useRef, useState } from 'react';
import { call } from '../../api/client.ts';
import { Button, SubmitButton } from '../../components/button.tsx';
import { CodeBlock } from '../../components/copy-button.tsx';
import { readForm } from '../../components/read-form.ts';
import { listOptions, Select } from '../../components/select.tsx';
import { Problem } from '../../components/states.tsx';

const sources = { github: 'Git repository', external_docker: 'Image' } as const;

/** A button with a form that creates a deployment from a git repository or an image. */
export function CreateDeployment() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [source, setSource] = useState<keyof typeof sources>('github');
  const client = useQueryClient();
  const navigate = useNavigate();
  const create = useMutation({
    mutationFn: (fields: { name: string; url: string; ref: string; config: string }) =>
      call('post', '/api/v2/deployments', {
        body: {
          name: fields.name,
          source,
          source_config: source === 'github' ? { repo_url: fields.url } : {},
          source_revision_config:
            source === 'github'
              ? { repo_ref: fields.ref, langgraph_config_path: fields.config }
              : { image_uri: fields.url },
          secrets: [],
        },
      }),
    onSuccess: async ({ id }) => {
      dialog.current?.close();
      await client.invalidateQueries({ queryKey: ['deployments'] });
      await navigate({ to: '/agents/$deploymentId', params: { deploymentId: id } });
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const read = readForm(event);
    create.mutate({ name: read('name'), url: read('url'), ref: read('ref'), config: read('config') });
  };
  return (
    <>
      <Button kind="primary" onClick={() => dialog.current?.showModal()}>
        Create
      </Button>
      <dialog ref={dialog} aria-labelledby="create-deployment">
        <form className="stack" onSubmit={submit}>
          <h2 id="create-deployment">Create a deployment</h2>
          <p className="muted">From a folder, with LANGSMITH_ENDPOINT and LANGSMITH_API_KEY set:</p>
          <CodeBlock label="Deploy a folder" code="runlake deploy path/to/folder --name my-agent" />
          <label className="field">
            Name
            <input className="input" name="name" required maxLength={200} />
          </label>
          <label className="field">
            Source
            <Select value={source} onChange={setSource} options={listOptions(sources)} />
          </label>
          <label className="field">
            {source === 'github' ? 'Repository' : 'Image'}
            <input
              className="input"
              name="url"
              required
              placeholder={source === 'github' ? 'https://github.com/example/agent' : 'registry.example.com/agent:1.0'}
            />
          </label>
          {source === 'github' && (
            <>
              <label className="field">
                Branch, tag or commit
                <input className="input" name="ref" required defaultValue="main" />
              </label>
              <label className="field">
                Path of the langgraph.json
                <input className="input" name="config" required defaultValue="langgraph.json" />
              </label>
            </>
          )}
          <Problem message={create.error?.message} />
          <div className="row">
            <SubmitButton disabled={create.isPending}>Create</SubmitButton>
            <Button onClick={() => dialog.current?.close()}>Cancel</Button>
          </div>
        </form>
      </dialog>
    </>
  );
}
