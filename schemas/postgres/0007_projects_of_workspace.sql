-- Names for usage are asked for by workspace, deleted projects included, which the other indexes leave out.
CREATE INDEX projects_of_workspace ON projects (workspace_id);
