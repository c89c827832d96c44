// The site's search works from the disk too: a page of a file: address may not start a worker, so an iframe is one.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.onmessage = null;
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.importScripts = (...urls) =>
      urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
    this.inside.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    };
    this.ready = this.load(url);
  }

  load(url) {
    return new Promise((done, failed) => {
      const script = this.inside.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = done;
      script.onerror = failed;
      this.inside.document.body.append(script);
    });
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.inside.frameElement.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
